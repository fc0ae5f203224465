package ready_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ax-scheduler/ax/internal/job"
	"github.com/ax-scheduler/ax/internal/ready"
	"github.com/ax-scheduler/ax/internal/routing"
)

func TestTheHashKeyIsAFieldOfTheParameters(t *testing.T) {
	for _, tt := range []struct{ key, params, want string }{
		{"userId", `{"userId":7}`, "7"},
		{"$.userId", `{"userId":"u7"}`, `"u7"`},
		{"$.user.id", `{"user":{"id":12}}`, "12"},
		{"user.id", `{"user":{"id":12}}`, "12"},
		{"userId", `{"other":7}`, "4711"},
		{"$.user.id", `{"user":3}`, "4711"},
		{"userId", `no json`, "4711"},
		{"", `{"userId":7}`, "4711"},
	} {
		b := &ready.Batch{JobID: 4711, Total: 1, Params: tt.params, Def: &job.Definition{Routing: job.Routing{Strategy: routing.ConsistentHash, HashKey: tt.key}}}
		require.Equal(t, tt.want, (&ready.Execution{Batch: b}).Request().Key, "%s of %s", tt.key, tt.params)
	}
}

// The shards of a batch are spread, and each stays where it is from firing to firing with a hash.
func TestShardsArePlacedOneByOne(t *testing.T) {
	b := &ready.Batch{JobID: 4711, Total: 3, Turn: 10, Def: &job.Definition{Routing: job.Routing{Strategy: routing.RoundRobin, Shards: 3}}}
	for shard := range 3 {
		r := (&ready.Execution{Batch: b, Shard: shard}).Request()
		require.EqualValues(t, 10+shard, r.Turn)
		require.Equal(t, 3, r.Total)
	}
	b.Def.Routing.Strategy = routing.ConsistentHash
	require.NotEqual(t, (&ready.Execution{Batch: b, Shard: 1}).Request().Key, (&ready.Execution{Batch: b, Shard: 2}).Request().Key)
	b.Def.Routing.Strategy = routing.Broadcast
	require.EqualValues(t, 10, (&ready.Execution{Batch: b, Shard: 2}).Request().Turn, "a broadcast counts by the shard alone")
}
