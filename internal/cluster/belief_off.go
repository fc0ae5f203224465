//go:build nofence

package cluster

const doubts = false
