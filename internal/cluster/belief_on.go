//go:build !nofence

package cluster

// doubts says that a replica lets go of what the database says is another's, and of everything while it can not renew. Only
// the control run of the fault tests is built without it.
const doubts = true
