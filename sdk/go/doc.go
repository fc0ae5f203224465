// Package ax turns a Go program into an executor of the ax scheduler.
//
//	ex, err := ax.New(ax.Options{Server: "http://127.0.0.1:8081", App: "order-service", Key: key})
//	ex.Simple("healthCheck", func(c *ax.Context) error { return ping(c) })
//	err = ex.Run(ctx)
//
// An executor registers with ax-server, takes executions, runs the handler of that name and
// reports how it ended. What it promises: an execution, told apart by batch, shard and attempt,
// is started at most once, also after a crash, because it is on disk before it is acknowledged;
// and a result, once on disk, is repeated until the server has committed it.
//
// The files follow the protocol: protocol.go has its messages, sign.go its signatures, client.go
// speaks to the server, serve.go answers it, pool.go runs handlers, journal.go is the memory on
// disk, results.go and output.go deliver what handlers produce, registry.go is the heartbeat.
package ax
