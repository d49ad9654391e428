package agent

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// problems are the problems that the status of the agent shows.
type problems struct {
	log *slog.Logger

	mu    sync.Mutex        // guards the following field
	texts map[string]string // by topic
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, texts: map[string]string{}}
}

// report records the outcome of a topic, and logs it if it has changed. A nil error ends the
// problem.
func (p *problems) report(topic string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch before := p.set(topic, text); {
	case text == before:
	case text == "":
		p.log.Info("recovered", "topic", topic)
	default:
		p.log.Warn("problem", "topic", topic, "error", err)
	}
}

// note records a problem that ends only with end.
func (p *problems) note(topic, text string) {
	if p.set(topic, text) != text {
		p.log.Error(text)
	}
}

// end ends a problem without a word.
func (p *problems) end(topic string) { p.set(topic, "") }

// set replaces the text of a topic, "" if it has none, and returns the one before.
func (p *problems) set(topic, text string) (before string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.texts[topic]
	if p.texts[topic] = text; text == "" {
		delete(p.texts, topic)
	}
	return before
}

// of returns the problem of a topic, or "".
func (p *problems) of(topic string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.texts[topic]
}

// list returns all problems, sorted by topic.
func (p *problems) list() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(p.texts)) {
		all = append(all, topic+": "+p.texts[topic])
	}
	return all
}
