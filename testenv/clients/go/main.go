// A load generator over grpc-go, or over net/http for JSON: what a caller in Go costs a control
// plane.
//
// It sends encoded requests as they are in files, and prints one JSON object with the keys of
// `outrigger bench -o json`, so that one reader understands both. In a closed loop (-in-flight
// alone) the next request is sent when another is answered; in an open loop (-rate) each request
// is due at its own time, from which its latency counts.
//
// The exit code is 1 if a request failed or none was answered, 64 for an invalid command line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A requested load.
type options struct {
	target      string
	requests    []string
	json        bool
	save        string
	connections int
	inFlight    int
	rate        float64
	timeout     time.Duration
	warmup      time.Duration
	duration    time.Duration
	processes   []process
}

// Values of an option that may be given several times.
type list []string

func (values *list) String() string { return fmt.Sprint(*values) }

func (values *list) Set(value string) error {
	*values = append(*values, value)
	return nil
}

func main() {
	given, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(64)
	}
	report, err := run(context.Background(), given)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(text))
	if problem := report.problem(); problem != "" {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}

func parse(arguments []string) (options, error) {
	var given options
	var requests, pids list
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.StringVar(&given.target, "target", "", "the server's `HOST:PORT`, without TLS")
	flags.Var(&requests, "request", "a `FILE` with an encoded PredictRequest, or with JSON; several are sent in turn")
	flags.BoolVar(&given.json, "json", false, "the requests are JSON for /v1/predict over HTTP/1.1, on as many connections as requests are in flight")
	flags.StringVar(&given.save, "save", "", "write the first answer to each request to this `DIR`, as answer-0.binpb (or .json) and so on")
	flags.IntVar(&given.connections, "connections", 2, "connections to the server")
	flags.IntVar(&given.inFlight, "in-flight", 16, "requests in flight: in a closed loop exactly this number, in an open loop at most; requests beyond it fail with CLIENT_SATURATED")
	flags.Float64Var(&given.rate, "rate", 0, "requests a second of an open loop; 0 is a closed loop")
	flags.DurationVar(&given.timeout, "timeout", time.Second, "timeout of a request, which is also sent to the server")
	flags.DurationVar(&given.warmup, "warmup", 2*time.Second, "duration of the load before the measurement")
	flags.DurationVar(&given.duration, "duration", 10*time.Second, "duration of the measurement")
	flags.Var(&pids, "pid", "a process whose CPU time is reported, as `NAME=PID`; may be given several times")
	if err := flags.Parse(arguments); err != nil {
		return given, err
	}
	given.requests = requests
	for _, text := range pids {
		found, err := parseProcess(text)
		if err != nil {
			return given, err
		}
		given.processes = append(given.processes, found)
	}
	return given, given.check()
}

func (given options) check() error {
	switch {
	case given.target == "" || len(given.requests) == 0:
		return fmt.Errorf("-target and -request are required")
	case given.connections < 1 || given.inFlight < 1:
		return fmt.Errorf("-connections and -in-flight must be at least 1")
	case given.rate < 0 || given.timeout <= 0 || given.duration <= 0 || given.warmup < 0:
		return fmt.Errorf("rates and times must not be negative, and -timeout and -duration not 0")
	}
	return nil
}

// Sends each request once, and then the load.
func run(ctx context.Context, given options) (*Report, error) {
	messages, err := read(given.requests)
	if err != nil {
		return nil, err
	}
	client, err := open(given)
	if err != nil {
		return nil, err
	}
	defer client.close()
	for at, message := range messages {
		// The server may have to load the model first.
		answer, err := client.call(ctx, at, message, max(given.timeout, time.Minute))
		if err != nil {
			return nil, fmt.Errorf("the first request is not answered: %w", err)
		}
		if err := save(given, at, answer); err != nil {
			return nil, err
		}
	}
	return measure(ctx, client, messages, given)
}

func read(files []string) ([][]byte, error) {
	messages := make([][]byte, len(files))
	for at, file := range files {
		message, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		messages[at] = message
	}
	return messages, nil
}

func open(given options) (client, error) {
	if given.json {
		return newWebClient(given.target, given.inFlight), nil
	}
	return dial(given.target, given.connections)
}

func save(given options, at int, answer []byte) error {
	if given.save == "" {
		return nil
	}
	kind := "binpb"
	if given.json {
		kind = "json"
	}
	return os.WriteFile(filepath.Join(given.save, fmt.Sprintf("answer-%d.%s", at, kind)), answer, 0o644)
}
