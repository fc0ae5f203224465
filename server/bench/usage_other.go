//go:build !linux

package bench

import "time"

// Where there is no /proc these figures are left out.
func cpuOf(int) (time.Duration, bool) { return 0, false }
func rssOf(int) (float64, bool)       { return 0, false }
func databasePID() (int, bool)        { return 0, false }
