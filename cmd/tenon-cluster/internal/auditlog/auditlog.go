// Package auditlog is the form of the audit in etcd: batches of the events of one node, as JSON on
// lines, compressed with gzip. It does not read or write etcd.
package auditlog

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tenon-cni/tenon/internal/cluster/local"
)

// maxBatch is the maximum length of an uncompressed batch, in bytes.
const maxBatch = 64 << 20

// Record is an event with its node.
type Record struct {
	Node string `json:"node"`
	local.Record
}

// Encode returns the batch of events of a node.
func Encode(node string, events []local.Record) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	e := json.NewEncoder(z)
	for _, r := range events {
		if err := e.Encode(Record{node, r}); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// Decode returns the events of a batch.
func Decode(batch []byte) ([]Record, error) {
	z, err := gzip.NewReader(bytes.NewReader(batch))
	if err != nil {
		return nil, fmt.Errorf("batch of the audit: %w", err)
	}
	return decode("", io.LimitReader(z, maxBatch))
}

// DecodeLog returns the events in a log that package local has written on a node.
func DecodeLog(node string, log []byte) ([]Record, error) {
	return decode(node, bytes.NewReader(log))
}

func decode(node string, r io.Reader) (list []Record, err error) {
	d := json.NewDecoder(r)
	for {
		record := Record{Node: node}
		err := d.Decode(&record)
		switch {
		case errors.Is(err, io.EOF):
			return list, nil
		case errors.Is(err, io.ErrUnexpectedEOF): // the last line was not written completely
			return list, nil
		case err != nil:
			return list, fmt.Errorf("event %d of the audit: %w", len(list)+1, err)
		}
		list = append(list, record)
	}
}
