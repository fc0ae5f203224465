package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLedgerIsComparedWithThePlan(t *testing.T) {
	plan := map[string]int64{"a": 1000, "b": 2000, "c": 3000, "d": 4000}
	ledger := []start{
		{BatchID: "a", DueAt: 1000, At: 1_000_500},
		{BatchID: "b", DueAt: 2000, At: 2_004_000},
		{BatchID: "b", DueAt: 2000, At: 2_003_000},
		{BatchID: "b", DueAt: 2000, At: 2_009_000},
		{BatchID: "d", DueAt: 4000, At: 3_998_000},
		{BatchID: "not planned", DueAt: 1, At: 9_000_000},
	}
	got := compare(plan, ledger)
	require.Equal(t, 1, got.lost)
	require.Equal(t, 1, got.doubled)
	require.Equal(t, 1, got.early)
	require.ElementsMatch(t, []int64{500, 3000, -2000}, got.errors)
	require.Equal(t, int64(1_000_000), got.first)
	require.Equal(t, int64(3_998_000), got.last)
}

func TestALedgerIsReadAsItWasWritten(t *testing.T) {
	want := []start{{BatchID: "10001-20261201000000", Shard: 3, DueAt: 1_796_000_000_000, At: 1_796_000_000_000_123}, {BatchID: "x", DueAt: 1, At: -5}}
	var b []byte
	for _, s := range want {
		b = s.append(b)
	}
	got, err := readLedger(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = readLedger(bytes.NewReader([]byte("a 1 2\n")))
	require.ErrorContains(t, err, `"a 1 2"`)
	_, err = readLedger(bytes.NewReader([]byte("a 1 2 x\n")))
	require.ErrorContains(t, err, `"a 1 2 x"`)
}

func TestPercentiles(t *testing.T) {
	var list []int64
	for i := int64(100); i >= 1; i-- {
		list = append(list, i*1000)
	}
	require.Equal(t, &Spans{Min: 1, P50: 50, P90: 90, P99: 99, Max: 100}, spans(list))
	require.Equal(t, &Spans{Min: 7, P50: 7, P90: 7, P99: 7, Max: 7}, spans([]int64{7000}))
	require.Nil(t, spans(nil))
}
