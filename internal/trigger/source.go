package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ax-scheduler/ax/internal/store"
)

// source holds firings that will be due: it says when its next one is, and makes those that are near
// durable. What asks for a batch right now needs none: it calls Ask.
type source interface {
	// next is when the nearest firing of each bucket is due, in milliseconds; buckets without one are left out.
	next(ctx context.Context) (map[int]int64, error)
	// open makes one page of what is due up to now + ahead durable; more says that there is another.
	open(ctx context.Context, f store.Fence, now int64) (more bool, err error)
	// ahead is how long before its time a firing is made durable.
	ahead() time.Duration
	// slack is the part of it that may pass before the source is asked, so that what is due close
	// together goes in one transaction; pace is the shortest time between two looks.
	slack() (slack, pace time.Duration)
}

// scheduled are the triggers of jobs that a clock fires.
type scheduled struct{ t *Trigger }

func (s scheduled) next(ctx context.Context) (map[int]int64, error) { return s.t.store.NextHints(ctx) }

func (s scheduled) open(ctx context.Context, f store.Fence, now int64) (bool, error) {
	return s.t.open(ctx, f, now)
}
func (s scheduled) ahead() time.Duration               { return Window }
func (s scheduled) slack() (slack, pace time.Duration) { return Window / 2, Window / 20 }

// look asks one source and returns how long it may be left alone.
func (t *Trigger) look(ctx context.Context, s source, owned []store.Fence, now int64, patience time.Duration) (sleep time.Duration, err error) {
	sleep = idle
	hints, err := s.next(ctx)
	if err != nil {
		return Window / 4, err
	}
	until := now + s.ahead().Milliseconds()
	var near []store.Fence
	for _, f := range owned {
		if hint, planned := hints[f.Bucket]; planned && hint <= until {
			near = append(near, f)
		}
	}
	errs := t.openAll(ctx, s, near, now, patience)
	if errs != nil {
		sleep = Window / 4
	}
	if len(near) > 0 {
		if hints, err = s.next(ctx); err != nil {
			return Window / 4, errors.Join(errs, err)
		}
	}
	slack, pace := s.slack()
	for _, f := range owned {
		// One that is still at work asks for the next look when it has finished.
		if hint, planned := hints[f.Bucket]; planned && !t.opening[f.Bucket].Load() {
			sleep = min(sleep, max(time.Duration(hint-now)*time.Millisecond-s.ahead()+slack, pace))
		}
	}
	return sleep, errs
}

// openAll makes durable what is due in some buckets, a few at a time, and waits for it for as long as patience
// lasts: a bucket whose rows somebody holds must not make the others late. One that is still at work is left alone.
func (t *Trigger) openAll(ctx context.Context, s source, near []store.Fence, now int64, patience time.Duration) error {
	var mu sync.Mutex
	var errs error
	var left bool // nobody waits any more
	var work sync.WaitGroup
	for _, f := range near {
		if t.opening[f.Bucket].Swap(true) {
			continue
		}
		work.Go(func() {
			t.slots <- struct{}{}
			defer func() {
				<-t.slots
				t.opening[f.Bucket].Store(false)
				mu.Lock()
				defer mu.Unlock()
				if left {
					t.Nudge()
				}
			}()
			for more, err := true, error(nil); more && err == nil; {
				if more, err = s.open(ctx, f, now); err != nil {
					mu.Lock()
					errs = errors.Join(errs, fmt.Errorf("bucket %d: %w", f.Bucket, err))
					mu.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	mu.Lock()
	defer mu.Unlock()
	left = true
	return errs
}
