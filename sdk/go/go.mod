module github.com/ax-scheduler/ax/sdk/go

go 1.25
