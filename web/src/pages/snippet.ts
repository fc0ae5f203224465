import { baseURL } from '../lib/base'

// The smallest executor, to copy from the console. It is the example of the SDK's README.
export function goExecutor(namespace: string, app: string): string {
  return `package main

import ("context"; "log"; "os"; "github.com/ax-scheduler/ax/sdk/go")

func main() {
	ex, err := ax.New(ax.Options{
		Server: ${JSON.stringify(baseURL)}, Namespace: ${JSON.stringify(namespace)}, App: ${JSON.stringify(app)},
		Key: os.Getenv("AX_APP_KEY"),
	})
	if err != nil { log.Fatal(err) }
	ex.Simple("hello", func(c *ax.Context) error { c.Logf("hello from %s", c.BatchID()); return nil })
	log.Fatal(ex.Run(context.Background()))
}
`
}
