package main

import (
	"testing"

	"github.com/ax-scheduler/ax/server/axtest"
)

func TestMain(m *testing.M) { axtest.Main(m) }

// shared is a case that shares a server with others and has a namespace of its own.
type shared struct {
	name string
	run  func(t *testing.T, ns *axtest.Namespace)
}

// runShared runs cases side by side and returns when all have ended.
func runShared(t *testing.T, s *axtest.Server, cases []shared) {
	t.Helper()
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, s.Namespace(t))
			})
		}
	})
}
