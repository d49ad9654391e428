package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// intentClaim is the kind of the intents of claim. Files of other kinds belong to other parts of
// the agent.
const intentClaim = "claim"

// intent is a transaction with an unknown outcome. Its file exists before the transaction is
// sent and until the outcome is in the node's files.
type intent struct {
	Schema int       `json:"schema"`
	Kind   string    `json:"kind"`
	Nonce  string    `json:"nonce"`
	Pool   string    `json:"pool"`
	Since  time.Time `json:"since"`
}

// intents are the files of the intents. The caller of each method has the turn.
type intents struct {
	dir string
}

func (i *intents) path(in intent) string {
	return filepath.Join(i.dir, in.Kind+"-"+in.Nonce+".json")
}

// write writes an intent durably.
func (i *intents) write(in intent) error {
	in.Schema = cluster.Schema
	content, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return err
	}
	return statefile.Replace(i.path(in), append(content, '\n'), 0o600, nil)
}

// remove removes an intent after its outcome was recorded.
func (i *intents) remove(in intent) error {
	err := os.Remove(i.path(in))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dropDrafts removes the intents that a killed agent was writing. Their transactions never began.
// The caller has the turn, so that nothing writes intents.
func (i *intents) dropDrafts() error {
	drafts, err := filepath.Glob(filepath.Join(i.dir, ".*"))
	for _, draft := range drafts {
		err = errors.Join(err, os.Remove(draft))
	}
	return err
}

// list returns the intents of a kind.
func (i *intents) list(kind string) ([]intent, error) {
	entries, err := os.ReadDir(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []intent
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), kind+"-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		in, err := readIntent(filepath.Join(i.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, in)
	}
	return all, err
}

func readIntent(path string) (in intent, err error) {
	content, err := statefile.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &in)
	}
	if err != nil {
		return in, fmt.Errorf("intent %s: %w", path, err)
	}
	return in, nil
}

// resolve finds the outcomes of claims that were interrupted, and excludes that one commits later.
// Intents stay while the node may not grow. The caller has the turn.
func (c *claims) resolve(ctx context.Context) error {
	if c.trust.mayGrow() != nil {
		return nil
	}
	left, err := c.intents.list(intentClaim)
	if err := errors.Join(err, c.intents.dropDrafts()); err != nil {
		return err
	}
	for _, in := range left {
		s, err := c.session.joined()
		if err != nil {
			return err
		}
		n, blocks, err := c.session.store().Blocks.Exclude(ctx, s.Node, in.Nonce)
		if err != nil {
			return fmt.Errorf("find the outcome of a claim in pool %s: %w", in.Pool, c.session.lapse(err))
		}
		c.session.setNode(n)
		if err := c.files.adopt(ctx, blocks); err != nil {
			return err
		}
		c.o.Log.Info("resolved an interrupted claim", "pool", in.Pool, "blocks", len(blocks))
		if err := c.intents.remove(in); err != nil {
			return err
		}
	}
	return nil
}
