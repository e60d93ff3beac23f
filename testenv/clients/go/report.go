package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
)

// Report has the keys of `outrigger bench -o json`, and the failures by gRPC code.
type Report struct {
	Client          string             `json:"client"`
	Mode            string             `json:"mode"`
	DurationSeconds float64            `json:"duration_seconds"`
	OfferedRate     *float64           `json:"offered_rate"`
	Requests        int                `json:"requests"`
	OK              int                `json:"ok"`
	Throughput      float64            `json:"throughput"`
	Errors          map[string]int     `json:"errors"`
	Codes           map[string]int     `json:"codes"`
	Latency         *Quantiles         `json:"latency_ms"`
	CPU             map[string]float64 `json:"cpu_seconds_per_request"`
	RequestBytes    float64            `json:"request_bytes"`
	ResponseBytes   *float64           `json:"response_bytes"`
	Settings        Settings           `json:"settings"`
}

// Quantiles of answered requests, in milliseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Settings of the run.
type Settings struct {
	DurationSeconds float64 `json:"duration_seconds"`
	WarmupSeconds   float64 `json:"warmup_seconds"`
	Connections     int     `json:"connections"`
	InFlight        int     `json:"in_flight"`
	TimeoutSeconds  float64 `json:"timeout_seconds"`
	Threads         int     `json:"threads"`
}

func newReport(given options, messages [][]byte, counted *tally, before, after map[string]float64) *Report {
	failed, sizes := 0, 0
	for _, count := range counted.reasons {
		failed += count
	}
	for _, message := range messages {
		sizes += len(message)
	}
	report := &Report{
		Client:          library(given) + goVersion(),
		Mode:            "max",
		DurationSeconds: given.duration.Seconds(),
		Requests:        len(counted.latencies) + failed,
		OK:              len(counted.latencies),
		Throughput:      float64(counted.answered) / given.duration.Seconds(),
		Errors:          counted.reasons,
		Codes:           counted.codes,
		Latency:         quantiles(counted.latencies),
		CPU:             map[string]float64{},
		RequestBytes:    float64(sizes) / float64(len(messages)),
		Settings: Settings{
			DurationSeconds: given.duration.Seconds(),
			WarmupSeconds:   given.warmup.Seconds(),
			Connections:     given.connections,
			InFlight:        given.inFlight,
			TimeoutSeconds:  given.timeout.Seconds(),
			Threads:         runtime.GOMAXPROCS(0),
		},
	}
	if given.rate > 0 {
		report.Mode, report.OfferedRate = "rate", &given.rate
	}
	if report.OK > 0 {
		mean := float64(counted.responseBytes) / float64(report.OK)
		report.ResponseBytes = &mean
	}
	for name := range after {
		report.CPU[name] = (after[name] - before[name]) / float64(max(counted.ended, 1))
	}
	return report
}

func library(given options) string {
	if given.json {
		return "net/http, "
	}
	return "grpc-go " + grpc.Version + ", "
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.GoVersion
	}
	return runtime.Version()
}

// The reason for a failed run; empty if there is none.
func (report *Report) problem() string {
	switch failed := report.Requests - report.OK; {
	case failed > 0:
		return fmt.Sprintf("%d of %d requests failed", failed, report.Requests)
	case report.OK == 0:
		return "no request was answered"
	default:
		return ""
	}
}

// The quantiles of sorted latencies; nil if there are none.
func quantiles(sorted []time.Duration) *Quantiles {
	if len(sorted) == 0 {
		return nil
	}
	sum := time.Duration(0)
	for _, latency := range sorted {
		sum += latency
	}
	return &Quantiles{
		P50:  millis(at(sorted, 0.5)),
		P90:  millis(at(sorted, 0.9)),
		P99:  millis(at(sorted, 0.99)),
		P999: millis(at(sorted, 0.999)),
		Max:  millis(sorted[len(sorted)-1]),
		Mean: millis(sum) / float64(len(sorted)),
	}
}

// The least value that is not below this part of the values.
func at(sorted []time.Duration, part float64) time.Duration {
	rank := int(part * float64(len(sorted)))
	return sorted[min(rank, len(sorted)-1)]
}

func millis(duration time.Duration) float64 {
	return duration.Seconds() * 1e3
}
