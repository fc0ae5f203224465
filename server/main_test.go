package main

import (
	"testing"

	"github.com/ax-scheduler/ax/server/axtest"
)

func TestMain(m *testing.M) { axtest.Main(m) }
