//go:build nofence

package store

const fenced = false
