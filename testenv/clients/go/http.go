package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Connections over which JSON is sent to /v1/predict, as many as requests are in flight.
type webClient struct {
	address string
	client  *http.Client
}

// An answer with a status other than 200.
type refusal struct {
	reason string
	status int
}

func (refused *refusal) Error() string {
	return fmt.Sprintf("%s (HTTP %d)", refused.reason, refused.status)
}

func newWebClient(target string, inFlight int) *webClient {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = inFlight, inFlight
	return &webClient{address: "http://" + target + "/v1/predict", client: &http.Client{Transport: transport}}
}

func (c *webClient) close() {
	c.client.CloseIdleConnections()
}

// Sends a body and returns that of the answer.
func (c *webClient) call(ctx context.Context, _ int, body []byte, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-Timeout", strconv.FormatInt(timeout.Milliseconds(), 10)+"ms")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode == http.StatusOK {
		return answer, err
	}
	return nil, refusalOf(response.StatusCode, answer)
}

func refusalOf(status int, body []byte) *refusal {
	var answer struct {
		Error struct {
			Reason string `json:"reason"`
		} `json:"error"`
	}
	refused := &refusal{reason: "HTTP_" + strconv.Itoa(status), status: status}
	if json.Unmarshal(body, &answer) == nil && answer.Error.Reason != "" {
		refused.reason = answer.Error.Reason
	}
	return refused
}

// The server's stable reason, or else the client's own; and the HTTP status as the code.
func (c *webClient) reason(err error) (reason, code string) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.reason, "HTTP_" + strconv.Itoa(refused.status)
	case errors.Is(err, context.DeadlineExceeded):
		return "CLIENT_TIMEOUT", "CLIENT_TIMEOUT"
	default:
		return "CONNECTION_LOST", "CONNECTION_LOST"
	}
}
