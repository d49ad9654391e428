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

func (a *Agent) intentDir() string { return filepath.Join(a.o.Dir, "intents") }

func (a *Agent) intentPath(in intent) string {
	return filepath.Join(a.intentDir(), in.Kind+"-"+in.Nonce+".json")
}

// intend writes an intent durably.
func (a *Agent) intend(in intent) error {
	in.Schema = cluster.Schema
	content, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.intentDir(), 0o700); err != nil {
		return err
	}
	return statefile.Replace(a.intentPath(in), append(content, '\n'), 0o600, nil)
}

// settle removes an intent after its outcome was recorded.
func (a *Agent) settle(in intent) error {
	err := os.Remove(a.intentPath(in))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// dropDrafts removes the intents that a killed agent was writing. Their transactions never began.
// The caller has the turn, so that nothing writes intents.
func (a *Agent) dropDrafts() error {
	drafts, err := filepath.Glob(filepath.Join(a.intentDir(), ".*"))
	for _, draft := range drafts {
		err = errors.Join(err, os.Remove(draft))
	}
	return err
}

// intents returns the intents of a kind.
func (a *Agent) intents(kind string) ([]intent, error) {
	entries, err := os.ReadDir(a.intentDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []intent
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), kind+"-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		in, err := readIntent(filepath.Join(a.intentDir(), e.Name()))
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
func (a *Agent) resolve(ctx context.Context) error {
	if a.trust.mayGrow() != nil {
		return nil
	}
	left, err := a.intents(intentClaim)
	if err := errors.Join(err, a.dropDrafts()); err != nil {
		return err
	}
	for _, in := range left {
		s, err := a.session.joined()
		if err != nil {
			return err
		}
		n, blocks, err := a.session.store().Blocks.Exclude(ctx, s.Node, in.Nonce)
		if err != nil {
			return fmt.Errorf("find the outcome of a claim in pool %s: %w", in.Pool, a.session.lapse(err))
		}
		a.session.setNode(n)
		if err := a.files.adopt(ctx, blocks); err != nil {
			return err
		}
		a.o.Log.Info("resolved an interrupted claim", "pool", in.Pool, "blocks", len(blocks))
		if err := a.settle(in); err != nil {
			return err
		}
	}
	return nil
}
