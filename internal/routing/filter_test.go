package routing_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ax-scheduler/ax/internal/routing"
)

// P8, P27: an execution goes only where what it declares is free.
func TestCapacityIsAFilter(t *testing.T) {
	r := routing.New()
	full := func() routing.Candidate {
		return routing.Candidate{ID: 1, Address: "http://10.0.0.1:1", Slots: 4, CPUMilli: 4000, MemoryMB: 8192}
	}
	tests := []struct {
		name  string
		needs routing.Needs
		used  func(c *routing.Candidate)
		bar   string
	}{
		{"all is free", routing.Needs{CPUMilli: 4000, MemoryMB: 8192, Slots: 4}, func(*routing.Candidate) {}, ""},
		{"cpu is taken", routing.Needs{CPUMilli: 1500}, func(c *routing.Candidate) { c.UsedCPU = 2501 }, routing.BarCPU},
		{"cpu is left", routing.Needs{CPUMilli: 1500}, func(c *routing.Candidate) { c.UsedCPU = 2500 }, ""},
		{"memory is taken", routing.Needs{MemoryMB: 4096}, func(c *routing.Candidate) { c.UsedMemory = 4097 }, routing.BarMemory},
		{"slots are taken", routing.Needs{Slots: 1}, func(c *routing.Candidate) { c.UsedSlots = 4 }, routing.BarSlots},
		{"nothing is declared", routing.Needs{}, func(c *routing.Candidate) { c.UsedCPU, c.UsedMemory, c.UsedSlots = 9000, 9000, 9000 }, ""},
		{"more than it ever has", routing.Needs{CPUMilli: 4001}, func(*routing.Candidate) {}, routing.BarCPU},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := full()
			tt.used(&c)
			got := r.Pick(routing.Request{Strategy: routing.LeastBusy, Needs: tt.needs}, []routing.Candidate{c})
			require.Equal(t, tt.bar, got.Filtered[1])
			require.Equal(t, tt.bar == "", len(got.Order) == 1)
		})
	}
	// leastBusy looks at the resource that is fullest.
	a, b := full(), full()
	b.ID = 2
	a.UsedMemory, b.UsedCPU = 6000, 1000
	require.Equal(t, []int64{2, 1}, r.Pick(routing.Request{Strategy: routing.LeastBusy}, []routing.Candidate{a, b}).Order)
}

func TestAnExecutorsLimitIsAFilter(t *testing.T) {
	r := routing.New()
	list := executors(2)
	list[0].Busy, list[0].Same = 3, 1
	got := r.Pick(routing.Request{Strategy: routing.First, MostOnApp: 3}, list)
	require.Equal(t, []int64{2}, got.Order)
	require.Equal(t, routing.BarLimit, got.Filtered[1])
	require.Equal(t, []int64{2}, r.Pick(routing.Request{Strategy: routing.First, MostOnHandler: 1}, list).Order)
	require.Equal(t, []int64{1, 2}, r.Pick(routing.Request{Strategy: routing.First, MostOnHandler: 2, MostOnApp: 4}, list).Order)
}

// P11: a rule filters and ranks, and can not hold up the loop that it runs in.
func TestRules(t *testing.T) {
	r := routing.New()
	list := executors(3)
	list[0].Labels = map[string]string{"zone": "a", "cost": "3"}
	list[1].Labels = map[string]string{"zone": "b", "cost": "1"}
	list[2].Labels = map[string]string{"zone": "b", "cost": "1"}
	pick := func(rule string) routing.Choice {
		return r.Pick(routing.Request{Strategy: routing.Last, Rule: rule, JobName: "sync", Params: `{"zone":"b"}`, Shard: 1, Total: 3}, list)
	}
	require.Equal(t, []int64{3, 2}, pick(`executor.labels.zone == params.zone`).Order)
	require.Equal(t, routing.BarRule, pick(`executor.labels.zone == params.zone`).Filtered[1])
	require.Equal(t, []int64{3, 2, 1}, pick(`-int(executor.labels.cost)`).Order, "the highest number first, equals as the strategy says")
	require.Equal(t, []int64{1, 3, 2}, pick(`double(executor.labels.cost)`).Order)
	require.Equal(t, []int64{2}, pick(`executor.id == shard + 1 && total == 3 && job.name == "sync"`).Order)
	missing := pick(`executor.labels.rack == "r1"`)
	require.Empty(t, missing.Order)
	require.Equal(t, routing.BarRuleErr, missing.Filtered[1])
	e := r.Explain(routing.Request{Strategy: routing.Last}, list, missing)
	require.Contains(t, e.Candidates[0].Detail, "no such key")

	for _, text := range []string{"executor.", `"text"`, "nobody.x", strings.Repeat("1+", 600) + "1"} {
		bad := routing.CheckRule(text)
		require.NotNil(t, bad, text)
		require.Equal(t, "rule", bad.Field)
		require.NotEmpty(t, bad.Message.ZH)
	}
	require.Nil(t, routing.CheckRule(`executor.freeCpu > 2.0 && has(executor.labels.gpu)`))

	// Nested loops cost more than is allowed, and many executors more time than there is.
	slow := `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, a+b+c+d > 0))))`
	started := time.Now()
	got := r.Pick(routing.Request{Strategy: routing.First, Rule: slow}, executors(2000))
	require.Less(t, time.Since(started), time.Second)
	require.Empty(t, got.Order)
	require.Contains(t, []string{routing.BarRuleErr, routing.BarRuleTime}, got.Filtered[1])
	require.Equal(t, routing.BarRuleTime, got.Filtered[2000], "the time is over before the last one is asked")
}

// Few turns are spread already as the weights say.
func TestWeighted(t *testing.T) {
	r := routing.New()
	rapid.Check(t, func(t *rapid.T) {
		list := executors(rapid.IntRange(1, 6).Draw(t, "n"))
		sum := 0
		weights := make([]int, len(list))
		for i := range list {
			weights[i] = rapid.IntRange(0, 9).Draw(t, "weight")
			sum += weights[i]
			list[i].Labels = map[string]string{"weight": fmt.Sprint(weights[i])}
		}
		from := uint64(rapid.IntRange(0, 1_000_000_000).Draw(t, "from"))
		const turns = 500
		got := map[int64]int{}
		for turn := range uint64(turns) {
			got[r.Pick(routing.Request{Strategy: routing.Weighted, Turn: from + turn}, list).Order[0]]++
		}
		for i, w := range weights {
			if sum == 0 {
				require.InDelta(t, turns/len(list), got[int64(i+1)], 2, "all of weight 0 take turns")
				continue
			}
			require.InDelta(t, float64(turns*w)/float64(sum), got[int64(i+1)], 12, "%v", weights)
		}
	})
	list := executors(2)
	list[0].Labels = map[string]string{"weight": "much"}
	require.Len(t, r.Pick(routing.Request{Strategy: routing.Weighted}, list).Order, 2, "what is no number is 1")
}

// A strategy of one's own takes part like the others.
func TestAFurtherStrategy(t *testing.T) {
	r := routing.New(routing.Strategy{Name: "byName", Order: func(_ routing.Request, free []routing.Candidate) []routing.Candidate {
		slices.SortFunc(free, func(a, b routing.Candidate) int { return cmp.Compare(b.Address, a.Address) })
		return free
	}})
	require.Contains(t, r.Strategies(), "byName")
	require.Equal(t, []int64{3, 2, 1}, r.Pick(routing.Request{Strategy: "byName"}, executors(3)).Order)
	require.True(t, r.Steady(routing.Request{Strategy: "byName"}))
	require.False(t, r.Steady(routing.Request{Strategy: "byName", Rule: "true"}))
	require.False(t, r.Steady(routing.Request{Strategy: routing.LeastBusy}))
}

// P12: an explanation has every candidate, says why each was passed over, and what ordered the others.
func TestExplanations(t *testing.T) {
	r := routing.New()
	list := executors(4)
	list[0].Barred = routing.BarFull
	list[1].Labels = map[string]string{"zone": "a"}
	list[2].Labels, list[2].Used = map[string]string{"zone": "b"}, 7
	list[3].Labels, list[3].Used = map[string]string{"zone": "b"}, 3
	req := routing.Request{Strategy: routing.LeastUsed, Selector: "zone in (b)", Rule: "1"}
	e := r.Explain(req, list, r.Pick(req, list))
	require.Equal(t, []routing.Judged{
		{ID: 4, Address: "http://10.0.0.4:9999", Place: 1, Terms: map[string]float64{"used": 3, "rule": 1}},
		{ID: 3, Address: "http://10.0.0.3:9999", Place: 2, Terms: map[string]float64{"used": 7, "rule": 1}},
		{ID: 1, Address: "http://10.0.0.1:9999", Barred: routing.BarFull},
		{ID: 2, Address: "http://10.0.0.2:9999", Barred: routing.BarSelector, Detail: "zone in (b)"},
	}, e.Candidates)
	require.Equal(t, "full 1, selector_not_met 1", r.Pick(req, list).Sum())

	text, err := e.Keep(3900)
	require.NoError(t, err)
	again, err := routing.ParseExplanation(text)
	require.NoError(t, err)
	require.Equal(t, e, again)
	many := executors(1000)
	text, err = r.Explain(routing.Request{Strategy: routing.First}, many, r.Pick(routing.Request{Strategy: routing.First}, many)).Keep(3900)
	require.NoError(t, err)
	require.LessOrEqual(t, len(text), 3900)
	cut, err := routing.ParseExplanation(text)
	require.NoError(t, err)
	require.Equal(t, 1000, len(cut.Candidates)+cut.More)
	require.Equal(t, 1, cut.Candidates[0].Place, "the best are kept")
}
