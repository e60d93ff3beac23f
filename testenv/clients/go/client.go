package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const predict = "/outrigger.v1.PredictionService/Predict"

// Larger than any answer.
const maxAnswer = 64 << 20

// Connections to one server, by one of its two protocols.
type client interface {
	// Sends a message on the connection of this turn, and returns the answer's message.
	call(ctx context.Context, turn int, message []byte, timeout time.Duration) ([]byte, error)
	// The reason under which a failed call is counted, and its code.
	reason(err error) (reason, code string)
	close()
}

// Connections for gRPC.
type grpcClient struct {
	connections []*grpc.ClientConn
}

// Begins to open this number of connections; calls wait for theirs.
func dial(target string, count int) (*grpcClient, error) {
	opened := &grpcClient{}
	for range count {
		connection, err := grpc.NewClient(
			"passthrough:///"+target,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(maxAnswer)),
			// A refused request must be counted, not sent again.
			grpc.WithDisableRetry(),
		)
		if err != nil {
			opened.close()
			return nil, err
		}
		opened.connections = append(opened.connections, connection)
		connection.Connect()
	}
	return opened, nil
}

func (c *grpcClient) close() {
	for _, connection := range c.connections {
		connection.Close()
	}
}

func (c *grpcClient) call(ctx context.Context, turn int, message []byte, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var answer []byte
	connection := c.connections[turn%len(c.connections)]
	err := connection.Invoke(ctx, predict, message, &answer, grpc.WaitForReady(true))
	return answer, err
}

// Passes messages on as they are. The name is that of the usual codec, so that the content type is
// the usual one.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) (mem.BufferSlice, error) {
	bytes, ok := message.([]byte)
	if !ok {
		return nil, errors.New("a request must be bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, message any) error {
	bytes, ok := message.(*[]byte)
	if !ok {
		return errors.New("an answer must be bytes")
	}
	*bytes = data.Materialize()
	return nil
}

// The server's stable reason, or else the code; and the code.
func (c *grpcClient) reason(err error) (reason, code string) {
	failed := status.Convert(err)
	code = codeName(failed.Code())
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason(), code
		}
	}
	return code, code
}

// The code as gRPC's documentation spells it, DEADLINE_EXCEEDED for DeadlineExceeded.
func codeName(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}
	var name strings.Builder
	for at, letter := range code.String() {
		if at > 0 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(name.String())
}
