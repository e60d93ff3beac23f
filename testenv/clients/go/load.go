package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The time in which requests count.
type window struct {
	begin, end time.Time
}

func (w window) holds(moment time.Time) bool {
	return !moment.Before(w.begin) && moment.Before(w.end)
}

// A request without an answer.
type failure struct {
	reason, code string
}

// The counts of one or several senders.
type tally struct {
	latencies []time.Duration
	// Answers, and all ends of requests, within the window, whenever the requests were due.
	answered      int
	ended         int
	responseBytes int
	reasons       map[string]int
	codes         map[string]int
}

func newTally() *tally {
	return &tally{reasons: map[string]int{}, codes: map[string]int{}}
}

func (t *tally) fail(reason, code string) {
	t.reasons[reason]++
	t.codes[code]++
}

// Counts a request that was due at a time; `counts` is the time by which it belongs to the window.
func (t *tally) add(due, counts, ended time.Time, answer []byte, failure *failure, w window) {
	if w.holds(ended) {
		t.ended++
		if failure == nil {
			t.answered++
		}
	}
	if !w.holds(counts) {
		return
	}
	if failure != nil {
		t.fail(failure.reason, failure.code)
		return
	}
	t.latencies = append(t.latencies, ended.Sub(due))
	t.responseBytes += len(answer)
}

func (t *tally) merge(other *tally) {
	t.latencies = append(t.latencies, other.latencies...)
	t.answered += other.answered
	t.ended += other.ended
	t.responseBytes += other.responseBytes
	for reason, count := range other.reasons {
		t.reasons[reason] += count
	}
	for code, count := range other.codes {
		t.codes[code] += count
	}
}

// Sends the load, and reads the CPU times at both ends of the window.
func measure(ctx context.Context, client client, messages [][]byte, given options) (*Report, error) {
	begin := time.Now().Add(given.warmup)
	window := window{begin: begin, end: begin.Add(given.duration)}
	done := make(chan *tally, 1)
	go func() {
		if given.rate > 0 {
			done <- openLoop(ctx, client, messages, given, window)
		} else {
			done <- closedLoop(ctx, client, messages, given, window)
		}
	}()
	time.Sleep(time.Until(window.begin))
	before, err := cpuTimes(given.processes)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(window.end))
	after, err := cpuTimes(given.processes)
	if err != nil {
		return nil, err
	}
	counted := <-done
	slices.Sort(counted.latencies)
	return newReport(given, messages, counted, before, after), nil
}

func ask(ctx context.Context, client client, turn int, message []byte, timeout time.Duration) ([]byte, *failure) {
	answer, err := client.call(ctx, turn, message, timeout)
	if err == nil {
		return answer, nil
	}
	reason, code := client.reason(err)
	return nil, &failure{reason: reason, code: code}
}

// A sender for each request in flight, which keeps its connection.
func closedLoop(ctx context.Context, client client, messages [][]byte, given options, window window) *tally {
	return together(given.inFlight, func(sender int, counted *tally) {
		for turn := sender; time.Now().Before(window.end); turn += given.inFlight {
			sent := time.Now()
			answer, failed := ask(ctx, client, sender, messages[turn%len(messages)], given.timeout)
			ended := time.Now()
			counted.add(sent, ended, ended, answer, failed, window)
		}
	})
}

// Requests at equal distances. Senders are started as they are needed, up to the limit in flight.
func openLoop(ctx context.Context, client client, messages [][]byte, given options, window window) *tally {
	total, free := newTally(), make(chan *tally, given.inFlight)
	begin, interval := window.begin.Add(-given.warmup), float64(time.Second)/given.rate
	var started int
	var running sync.WaitGroup
	for turn := 0; ; turn++ {
		due := begin.Add(time.Duration(float64(turn) * interval))
		if !due.Before(window.end) {
			break
		}
		time.Sleep(time.Until(due))
		counted := next(free, &started, given.inFlight)
		if counted == nil {
			if window.holds(due) {
				total.fail("CLIENT_SATURATED", "CLIENT_SATURATED")
			}
			continue
		}
		running.Add(1)
		go func() {
			defer running.Done()
			answer, failed := ask(ctx, client, turn, messages[turn%len(messages)], given.timeout)
			counted.add(due, due, time.Now(), answer, failed, window)
			free <- counted
		}()
	}
	running.Wait()
	for range started {
		total.merge(<-free)
	}
	return total
}

// The counts of a sender that is free, or new ones; nil if as many as allowed are busy.
func next(free chan *tally, started *int, limit int) *tally {
	select {
	case counted := <-free:
		return counted
	default:
	}
	if *started == limit {
		return nil
	}
	*started++
	return newTally()
}

// Runs senders at once, and returns the sum of their counts.
func together(senders int, send func(sender int, counted *tally)) *tally {
	var running sync.WaitGroup
	counts := make([]*tally, senders)
	for sender := range senders {
		counts[sender] = newTally()
		running.Add(1)
		go func() {
			defer running.Done()
			send(sender, counts[sender])
		}()
	}
	running.Wait()
	total := newTally()
	for _, counted := range counts {
		total.merge(counted)
	}
	return total
}
