module github.com/ax-scheduler/ax

go 1.26
