// Package secret keeps values that jobs use and nobody reads: they are sealed before the database has them, opened
// only for the request that takes a run to its executor, and known once more where output and results arrive, to be
// masked there.
package secret

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/seal"
	"github.com/ax-scheduler/ax/internal/store"
)

// openedMost bounds the opened values that are kept in memory, so that each line of output does not open them again.
const openedMost = 2000

// Keeper seals and opens secrets. It is safe for concurrent use.
type Keeper struct {
	store  *store.Store
	sealer *seal.Sealer
	mac    []byte

	mu     sync.Mutex
	opened map[string]string // by sealed text
}

// New makes a Keeper.
func New(s *store.Store, sealer *seal.Sealer) (*Keeper, error) {
	mac, err := sealer.Derive("secret mac")
	if err != nil {
		return nil, err
	}
	return &Keeper{store: s, sealer: sealer, mac: mac, opened: map[string]string{}}, nil
}

// MissingError says that a job names a secret that is not there, or that can not be opened.
type MissingError struct {
	Name string
	Err  error // nil = it is not there
}

// Error tells which.
func (e *MissingError) Error() string {
	if e.Err == nil {
		return "no secret " + e.Name
	}
	return fmt.Sprintf("secret %s: %v", e.Name, e.Err)
}

// Unwrap is why it can not be opened.
func (e *MissingError) Unwrap() error { return e.Err }

// about binds a sealed value to its place: copied to another row it does not open.
func about(ns int64, name string, version int64) string {
	return "secret|" + strconv.FormatInt(ns, 10) + "|" + name + "|" + strconv.FormatInt(version, 10)
}

// Seal makes the row of a version of a secret. Its mark says of two values whether they are the same, to nobody else
// than who has the master key.
func (k *Keeper) Seal(ns int64, name string, version int64, value string) (store.SecretVersion, error) {
	sealed, err := k.sealer.Seal(about(ns, name, version), []byte(value))
	if err != nil {
		return store.SecretVersion{}, err
	}
	h := hmac.New(sha256.New, k.mac)
	_, _ = fmt.Fprintf(h, "%d|%s|%s", ns, name, value)
	return store.SecretVersion{NS: ns, Name: name, Version: version, Sealed: sealed, Mark: hex.EncodeToString(h.Sum(nil))[:12], Length: len(value)}, nil
}

func (k *Keeper) open(v store.SecretVersion) (string, error) {
	k.mu.Lock()
	text, ok := k.opened[v.Sealed]
	k.mu.Unlock()
	if ok {
		return text, nil
	}
	plain, err := k.sealer.Open(about(v.NS, v.Name, v.Version), v.Sealed)
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.opened) >= openedMost {
		clear(k.opened)
	}
	k.opened[v.Sealed] = string(plain)
	return string(plain), nil
}

// Fill puts secrets into the parameters of a run: those that its job's own parameters name, and no others, whoever
// wrote the parameters. A *MissingError says that one of them can not be had; any other error comes from the database.
func (k *Keeper) Fill(ctx context.Context, ns int64, defined, params string) (string, error) {
	wanted, _ := job.SecretNames(params)
	if len(wanted) == 0 {
		return params, nil
	}
	allowed, _ := job.SecretNames(defined)
	found, err := k.store.Secrets(ctx, ns, allowed)
	if err != nil {
		return "", err
	}
	values := make(map[string]string, len(allowed))
	for _, name := range allowed {
		v, ok := found[name]
		if !ok {
			return "", &MissingError{Name: name}
		}
		if values[name], err = k.open(v); err != nil {
			return "", &MissingError{name, err}
		}
	}
	return job.FillSecrets(params, values), nil
}

// Used lists the values that runs of jobs may have been given, by job: of each secret that a job names also those
// that were in force lately. A value that does not open was given to nobody.
func (k *Keeper) Used(ctx context.Context, ns int64, jobs ...int64) (map[int64][]string, error) {
	used, err := k.store.SecretsUsed(ctx, ns, jobs)
	if err != nil || len(used) == 0 {
		return nil, err
	}
	out := make(map[int64][]string, len(used))
	for id, list := range used {
		for _, v := range list {
			if text, err := k.open(v); err == nil {
				out[id] = append(out[id], text)
			}
		}
	}
	return out, nil
}
