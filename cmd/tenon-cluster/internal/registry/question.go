package registry

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenon-cni/tenon/internal/cluster"
)

// Ask asks all nodes what they use that the store does not show, and returns the nonce of the
// question. Agents that distrust the store answer at their next renewal.
func (r Questions) Ask(ctx context.Context) (question string, err error) {
	question = r.o.Nonce()
	var c change
	c.put(r.keys.Question(), cluster.Question{Schema: cluster.Schema, Nonce: question})
	_, err = r.repeat(ctx, func(ctx context.Context) error {
		_, err := r.write(ctx, "ask the nodes", c)
		return err
	})
	return question, err
}

// Read reads the nonce of the question to the nodes, "" if there is none.
func (r Questions) Read(ctx context.Context) (string, error) {
	answers, err := r.read(ctx, "question", clientv3.OpGet(r.keys.Question()))
	if err != nil || len(answers[0].Kvs) == 0 {
		return "", err
	}
	q, err := decode[cluster.Question](answers[0].Kvs[0])
	return q.Nonce, err
}

// Answer writes the answer of a node. ErrForeign: the store was restored again.
func (r Questions) Answer(ctx context.Context, node string, answer cluster.Answer) error {
	answer.Schema = cluster.Schema
	var c change
	c.put(r.keys.Answer(node), answer)
	_, err := r.repeat(ctx, func(ctx context.Context) error {
		_, err := r.write(ctx, "answer of node "+node, c)
		return err
	})
	return err
}

// Answers reads the answers to a question, by node.
func (r Questions) Answers(
	ctx context.Context, question string,
) (map[string]cluster.Answer, error) {
	kvs, _, err := r.list(ctx, r.keys.Answers())
	if err != nil {
		return nil, err
	}
	answers := map[string]cluster.Answer{}
	for _, kv := range kvs {
		a, err := decode[cluster.Answer](kv)
		if err != nil {
			return nil, err
		}
		if a.Question == question {
			answers[cluster.Last(string(kv.Key))] = a
		}
	}
	return answers, nil
}
