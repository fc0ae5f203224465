import { baseURL } from '../lib/base'

// The smallest executor, to copy from the console.
export function goExecutor(namespace: string, app: string): string {
  return `package main

import (
	"context"
	"log"
	"os"

	ax "github.com/ax-scheduler/ax/sdk/go"
)

func main() {
	ex := ax.New(ax.Options{Server: ${JSON.stringify(baseURL)}, Namespace: ${JSON.stringify(namespace)}, App: ${JSON.stringify(app)}, Key: os.Getenv("AX_APP_KEY")})
	ex.Handle("hello", func(ctx context.Context, run *ax.Run) error {
		run.Logf("hello from batch %s", run.BatchID)
		return nil
	})
	log.Fatal(ex.Run(context.Background()))
}
`
}
