package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
)

// Store is a connection to etcd.
type Store interface {
	registry.Client
	// Health asks the members for their state. It fails only if no member answers.
	Health(ctx context.Context) (Health, error)
	Close() error
}

// Health is the state of etcd.
type Health struct {
	Members  []Member `json:"members"`
	Leader   string   `json:"leader,omitempty"`
	Quorum   bool     `json:"quorum"`
	Version  string   `json:"version,omitempty"` // the oldest of the members that answer
	Size     int64    `json:"databaseBytes"`     // the largest
	Alarms   []string `json:"alarms,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Member is a member of etcd.
type Member struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty if it does not answer
	Learner bool   `json:"learner,omitempty"`
	Error   string `json:"error,omitempty"`
}

// etcd implements Store.
type etcd struct{ *clientv3.Client }

func connect(ctx context.Context, s settings.Settings) (Store, error) {
	client, err := s.Connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	return etcd{client}, nil
}

// Health implements Store.
func (e etcd) Health(ctx context.Context) (h Health, err error) {
	first, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	list, err := e.MemberList(first, clientv3.WithSerializable())
	if err != nil {
		return h, fmt.Errorf("list the members of etcd: %w", err)
	}
	leader, voters, answers := uint64(0), 0, 0
	for _, m := range list.Members {
		entry := Member{Name: cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)), Learner: m.IsLearner}
		state, err := e.memberStatus(ctx, m)
		if !m.IsLearner {
			voters++
		}
		switch {
		case err != nil:
			entry.Error = err.Error()
		default:
			entry.Version = state.Version
			leader = cmp.Or(leader, state.Leader)
			h.Size = max(h.Size, state.DbSize)
			if h.Version == "" || compareVersions(state.Version, h.Version) < 0 {
				h.Version = state.Version
			}
			if !m.IsLearner {
				answers++
			}
		}
		h.Members = append(h.Members, entry)
	}
	h.Quorum = leader != 0 && answers > voters/2
	for _, m := range list.Members {
		if m.ID == leader {
			h.Leader = cmp.Or(m.Name, fmt.Sprintf("%x", m.ID))
		}
	}
	slices.SortFunc(h.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	h.alarms(ctx, e)
	h.Warnings = append(h.Warnings, versionWarnings(h.Version)...)
	return h, nil
}

// memberStatus asks one member, by the first of its addresses that answers.
func (e etcd) memberStatus(
	ctx context.Context, m *etcdserverpb.Member,
) (*clientv3.StatusResponse, error) {
	err := errors.New("the member advertises no client URL")
	for _, url := range m.ClientURLs {
		ctx, cancel := context.WithTimeout(ctx, memberPatience)
		var state *clientv3.StatusResponse
		state, err = e.Status(ctx, url)
		cancel()
		if err == nil {
			return state, nil
		}
	}
	return nil, err
}

// alarms reads alarms; they need a quorum.
func (h *Health) alarms(ctx context.Context, e etcd) {
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	list, err := e.AlarmList(ctx)
	if err != nil {
		return
	}
	for _, a := range list.Alarms {
		h.Alarms = append(h.Alarms, a.Alarm.String())
	}
	slices.Sort(h.Alarms)
	h.Alarms = slices.Compact(h.Alarms)
}

// versionWarnings lists the defects of a version of etcd that concern this program.
func versionWarnings(version string) (list []string) {
	if !strings.HasPrefix(version, "3.4.") {
		return nil
	}
	for _, fixed := range []struct{ version, defect string }{
		{"3.4.31", "leases may end early, and watches may lose events"},
		{"3.4.36", "a watch may lose a deletion during compaction"},
		{"3.4.38", "the renewal of a revoked lease may succeed"},
		{"3.4.42", "nested transactions bypass permissions"},
	} {
		if compareVersions(version, fixed.version) < 0 {
			list = append(list, fmt.Sprintf("version %s is below %s: %s", version, fixed.version,
				fixed.defect))
		}
	}
	return list
}

// compareVersions compares versions of the form 3.4.23.
func compareVersions(a, b string) int {
	return slices.Compare(versionParts(a), versionParts(b))
}

func versionParts(v string) []int {
	var parts [3]int
	v, _, _ = strings.Cut(v, "-")
	_, _ = fmt.Sscanf(v, "%d.%d.%d", &parts[0], &parts[1], &parts[2])
	return parts[:]
}

// explain adds hints to the error of a command.
func (a *app) explain(ctx context.Context, s settings.Settings, err error) error {
	var hints []string
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(hinted)), errors.As(err, new(usageError)), errors.As(err, new(exitStatus)):
		return err
	case errors.Is(err, settings.ErrNoEndpoints):
		hints = []string{`write {"cluster": "NAME", "endpoints": ["https://HOST:2379"]} into ` +
			settings.DefaultFile + ", or give --endpoints"}
	case errors.Is(err, rpctypes.ErrNoSpace):
		hints = []string{"etcd's database has reached its quota and refuses writes: compact it, " +
			"defragment one member after the other, then run etcdctl alarm disarm"}
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		hints = []string{fmt.Sprintf("grant the user's role read and write permission for the prefix "+
			"/tenon/%s/: etcdctl role grant-permission ROLE readwrite --prefix=true /tenon/%s/",
			s.Cluster, s.Cluster)}
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision):
		hints = []string{"etcd requires authentication: set cert and key, or username and passwordFile"}
	case errors.Is(err, registry.ErrForeign):
		hints = []string{"check --cluster and --endpoints"}
	case errors.Is(err, registry.ErrConflict):
		hints = []string{"another program changed the same object; run the command again"}
	case silent(err):
		return a.noAnswer(ctx, s, err)
	}
	return hint(err, hints...)
}

// memberDeadline is the message of a member that has reached its own deadline.
const memberDeadline = "context deadline exceeded"

// silent reports whether etcd did not answer a request, or answered that it has no quorum.
func silent(err error) bool {
	for _, e := range []error{context.DeadlineExceeded, registry.ErrUnknown, rpctypes.ErrNoLeader,
		rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged} {
		if errors.Is(err, e) {
			return true
		}
	}
	var grpc interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &grpc) {
		return false
	}
	s := grpc.GRPCStatus()
	// A member without leader reports the end of its own deadline with the code Unknown.
	return s.Code() == codes.Unavailable || s.Code() == codes.DeadlineExceeded ||
		s.Code() == codes.Unknown && s.Message() == memberDeadline
}

// noAnswer explains why etcd does not answer.
func (a *app) noAnswer(ctx context.Context, s settings.Settings, err error) error {
	causes := s.Diagnose(context.WithoutCancel(ctx), a.Now())
	if len(causes) == 0 {
		causes = []string{"all endpoints accept connections, but etcd has no leader or its members " +
			"hang: look at them with etcdctl endpoint status --cluster"}
	}
	if errors.Is(err, registry.ErrUnknown) {
		causes = append(causes, "run the command again: it first determines whether the last attempt "+
			"took effect")
	}
	causes = append(causes, "nodes go on with the addresses of their own blocks")
	return hint(fmt.Errorf("etcd does not answer: %w", err), causes...)
}
