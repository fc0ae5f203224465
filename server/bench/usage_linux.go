package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) (time.Duration, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name of the program, in brackets, may hold spaces.
	_, rest, ok := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err1 == nil && err2 == nil
}

// rssOf is the resident memory of a process in megabytes (10⁶ bytes).
func rssOf(pid int) (float64, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib * 1024 / 1e6, err == nil
		}
	}
	return 0, false
}

// databasePID is the one process named mariadbd or mysqld on this host, if there is just one.
func databasePID() (int, bool) {
	found, list := 0, 0
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if comm := strings.TrimSpace(string(raw)); comm == "mariadbd" || comm == "mysqld" {
			found, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
			list++
		}
	}
	return found, list == 1
}
