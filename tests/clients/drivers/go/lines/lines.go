// Package lines is the line protocol of a driver, for those in Go; ../../lines.py describes it.
package lines

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

const maxLineBytes = 64 << 20

// Unsupported says which feature the client does not have.
type Unsupported string

func (u Unsupported) Error() string { return string(u) }

// Request has the arguments of all actions.
type Request struct {
	Do               string            `json:"do"`
	Topic            string            `json:"topic"`
	Partition        int32             `json:"partition"`
	Partitions       int               `json:"partitions"`
	Configs          map[string]string `json:"configs"`
	Names            []string          `json:"names"`
	Name             string            `json:"name"`
	Value            string            `json:"value"`
	Offset           int64             `json:"offset"`
	Timestamp        int64             `json:"timestamp"`
	Records          []Record          `json:"records"`
	Acks             string            `json:"acks"`
	Codec            string            `json:"codec"`
	Idempotent       bool              `json:"idempotent"`
	Transaction      *Transaction      `json:"transaction"`
	ID               string            `json:"id"`
	End              string            `json:"end"`
	Source           string            `json:"source"`
	Count            int               `json:"count"`
	TimeoutMs        int               `json:"timeout_ms"`
	MaxBytes         *int32            `json:"max_bytes"`
	Isolation        string            `json:"isolation"`
	Group            string            `json:"group"`
	Topics           []string          `json:"topics"`
	Pattern          *string           `json:"pattern"`
	SessionTimeoutMs int               `json:"session_timeout_ms"`
	InstanceID       *string           `json:"instance_id"`
	Assignor         *string           `json:"assignor"`
	Protocol         *string           `json:"protocol"`
	Assigned         *int              `json:"assigned"`
	Prefix           string            `json:"prefix"`
	Login
}

// Transaction that the records are to be produced in.
type Transaction struct {
	ID  string `json:"id"`
	End string `json:"end"`
}

// Record to be produced, or consumed.
type Record struct {
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is written [name, value].
type Header struct {
	Name  string
	Value []byte
}

// MarshalJSON implements json.Marshaler.
func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

// UnmarshalJSON implements json.Unmarshaler.
func (h *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Name, &h.Value})
}

// Polled is the result of a poll.
type Polled struct {
	Records  []Record `json:"records"`
	Assigned [][]any  `json:"assigned"`
}

// Position is a partition with an offset, the result of a produced record.
func Position(partition int32, offset int64) []int64 { return []int64{int64(partition), offset} }

// Serve answers requests until the input ends.
func Serve(act func(Request) (any, error), nameOf func(error) string) {
	answers := os.Stdout
	os.Stdout = os.Stderr
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, maxLineBytes)
	for input.Scan() {
		text, err := json.Marshal(answer(input.Bytes(), act, nameOf))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(answers, "%s\n", text)
	}
}

func answer(line []byte, act func(Request) (any, error), nameOf func(error) string) map[string]any {
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		panic(err)
	}
	result, err := act(request)
	var missing Unsupported
	switch {
	case errors.As(err, &missing):
		return map[string]any{"unsupported": string(missing)}
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return map[string]any{"error": nameOf(err)}
	}
	return map[string]any{"result": result}
}
