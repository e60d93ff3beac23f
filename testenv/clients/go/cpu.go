package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The kernel's unit of CPU times in /proc on Linux, USER_HZ.
const ticksPerSecond = 100

// A process whose CPU time is reported under a name.
type process struct {
	name string
	id   int
}

func parseProcess(text string) (process, error) {
	name, id, ok := strings.Cut(text, "=")
	number, err := strconv.Atoi(id)
	if !ok || name == "" || err != nil {
		return process{}, fmt.Errorf("a process is written NAME=PID, not %q", text)
	}
	_, err = cpuOf(number)
	return process{name: name, id: number}, err
}

// CPU seconds (user and system, all threads) of each process and of this one since its start.
func cpuTimes(processes []process) (map[string]float64, error) {
	times := map[string]float64{"client": own()}
	for _, each := range processes {
		seconds, err := cpuOf(each.id)
		if err != nil {
			return nil, err
		}
		times[each.name] = seconds
	}
	return times, nil
}

func own() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return (time.Duration(usage.Utime.Nano()) + time.Duration(usage.Stime.Nano())).Seconds()
}

// utime and stime of /proc/PID/stat: fields 14 and 15 of proc(5).
func cpuOf(id int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return 0, err
	}
	// Field 2, the command's name, may contain spaces and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has no times", id)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return float64(user+system) / ticksPerSecond, err
}
