//go:build !nofence

package store

// fenced says that a scheduling transaction looks whether its bucket is still its own. Only the control run of
// the fault tests is built without it, to show that they would notice.
const fenced = true
