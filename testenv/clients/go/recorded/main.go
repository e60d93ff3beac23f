// Makes the calls that are recorded, over grpc-go.
package main

import (
	"context"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	connection, err := grpc.NewClient(
		"passthrough:///"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	call := func(length int) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		message := wrapperspb.String(strings.Repeat("r", length))
		answer := &wrapperspb.StringValue{}
		if err := connection.Invoke(ctx, "/recorded.Service/Call", message, answer); err != nil {
			log.Fatal(err)
		}
	}
	call(10)
	var both sync.WaitGroup
	for _, length := range []int{700, 900} {
		both.Add(1)
		go func() {
			defer both.Done()
			call(length)
		}()
	}
	both.Wait()
}
