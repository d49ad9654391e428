package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/statefile"
)

const (
	// auditTime is the interval at which the agent stores the events of the audit.
	auditTime = time.Minute
	// auditKeep is the time for which the store keeps them.
	auditKeep = 30 * 24 * time.Hour
	// auditBatch is the largest batch, in bytes before compression.
	auditBatch = 256 << 10
	// auditDays is the number of days for which the node keeps the stored files.
	auditDays = 2
)

// AuditRecord is an event of a batch in the store: JSON, one per line.
type AuditRecord struct {
	Node string `json:"node"`
	local.Record
}

// uploads is the progress of the uploads, in audit/uploaded.json.
type uploads struct {
	Schema int               `json:"schema"`
	Days   map[string]upload `json:"days"`
}

// upload is the progress of a day's file, in bytes. The batch from Done to Next is being stored:
// its bounds are fixed before the request, so that a repeated request stores the same bytes. Done
// is also the sequence number of the batch.
type upload struct {
	Done int64 `json:"done"`
	Next int64 `json:"next"`
}

func (a *Agent) auditDir() string { return filepath.Join(a.o.Dir, "audit") }

// uploadAudit stores new events, at most once per auditTime. The caller has the turn.
func (a *Agent) uploadAudit(ctx context.Context) error {
	if time.Since(a.commons.audited) < auditTime {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(a.auditDir(), "*.log"))
	if err != nil || len(logs) == 0 {
		return err
	}
	a.commons.audited = time.Now()
	u, err := a.readUploads()
	if err != nil {
		return err
	}
	slices.Sort(logs)
	for _, path := range logs {
		if err := a.uploadDay(ctx, path, &u); err != nil {
			return fmt.Errorf("store the audit: %s: %w", path, err)
		}
	}
	return a.pruneAudit(logs, u)
}

func (a *Agent) uploadsPath() string { return filepath.Join(a.auditDir(), "uploaded.json") }

func (a *Agent) readUploads() (u uploads, err error) {
	content, err := statefile.ReadFile(a.uploadsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return uploads{Days: map[string]upload{}}, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &u)
	}
	if u.Days == nil {
		u.Days = map[string]upload{}
	}
	return u, err
}

func (a *Agent) saveUploads(u uploads) error {
	u.Schema = cluster.Schema
	content, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return statefile.Replace(a.uploadsPath(), append(content, '\n'), 0o600, nil)
}

// uploadDay stores the new events of a file, in batches.
func (a *Agent) uploadDay(ctx context.Context, path string, u *uploads) error {
	day := strings.TrimSuffix(filepath.Base(path), ".log")
	for {
		at := u.Days[day]
		batch, err := readBatch(path, at)
		if err != nil || len(batch) == 0 {
			return err
		}
		at.Next = at.Done + int64(len(batch))
		u.Days[day] = at
		if err := a.saveUploads(*u); err != nil {
			return err
		}
		err = a.store().AddAudit(ctx, day, a.o.Node.Name, uint64(at.Done), a.records(batch), auditKeep)
		switch {
		case errors.Is(err, registry.ErrConflict): // the file was replaced; the stored batch stays
			a.log.Warn("the store has another batch of audit events", "day", day, "at", at.Done)
		case err != nil:
			return a.lapse(err)
		}
		u.Days[day] = upload{Done: at.Next, Next: at.Next}
		if err := a.saveUploads(*u); err != nil {
			return err
		}
	}
}

// readBatch reads the whole lines of the next batch: the lines of an interrupted upload, or all
// new ones up to auditBatch.
func readBatch(path string, at upload) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	limit := int64(auditBatch)
	if at.Next > at.Done {
		limit = at.Next - at.Done
	}
	batch, err := io.ReadAll(io.NewSectionReader(f, at.Done, limit))
	return batch[:bytes.LastIndexByte(batch, '\n')+1], err
}

// records adds the node to the events of a batch. Lines that an interrupted write has damaged are
// skipped.
func (a *Agent) records(batch []byte) []byte {
	var out bytes.Buffer
	encode := json.NewEncoder(&out)
	for line := range bytes.Lines(batch) {
		r := AuditRecord{Node: a.o.Node.Name}
		if json.Unmarshal(line, &r.Record) == nil {
			_ = encode.Encode(r) // to memory, and all records can be encoded
		}
	}
	return out.Bytes()
}

// pruneAudit removes the files of old days.
func (a *Agent) pruneAudit(logs []string, u uploads) error {
	oldest := a.now().wall.UTC().AddDate(0, 0, -auditDays).Format(time.DateOnly)
	pruned := false
	for _, path := range logs {
		day := strings.TrimSuffix(filepath.Base(path), ".log")
		if day >= oldest {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(u.Days, day)
		pruned = true
	}
	if pruned {
		return a.saveUploads(u)
	}
	return nil
}
