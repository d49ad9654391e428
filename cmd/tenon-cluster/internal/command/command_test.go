package command

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/registry"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/settings"
	"github.com/tenon-cni/tenon/cmd/tenon-cluster/internal/test/memkv"
	"github.com/tenon-cni/tenon/internal/cluster"
	"github.com/tenon-cni/tenon/internal/cluster/local"
	"github.com/tenon-cni/tenon/internal/ipam"
	"github.com/tenon-cni/tenon/internal/statefile"
)

// Values that differ in each run: nonces, and times of files, which do not follow virtual time.
var (
	random   = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	fileTime = regexp.MustCompile(`\b20[2-9][0-9]-[0-9T:-]+Z`)
)

var update = flag.Bool("update", false, "rewrite the transcripts in testdata")

// world is a cluster in memory, in virtual time, and the files of node n1. It records commands and
// their output.
type world struct {
	*testing.T
	store      *memkv.Store
	client     *memkv.Client
	health     Health
	healthErr  error
	connectErr error
	dir        string
	answer     string // to the question for confirmation
	transcript bytes.Buffer
	leases     map[string]registry.Session
	nonce      string // of the store when the first node joined
	ttl        time.Duration
}

// scenario runs steps in virtual time and compares the transcript with testdata/NAME.txt.
func scenario(t *testing.T, steps func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memkv.New(), dir: dir, leases: map[string]registry.Session{}}
		w.client = w.store.Client("operator")
		w.health = Health{
			Members: []Member{{Name: "m1", Version: "3.4.45"}, {Name: "m2", Version: "3.4.45"},
				{Name: "m3", Version: "3.4.45"}},
			Leader: "m2", Quorum: true, Version: "3.4.45", Size: 20480,
		}
		steps(w)
		w.compare()
	})
}

func (w *world) compare() {
	w.Helper()
	name := filepath.Join("testdata", w.Name()+".txt")
	got := strings.ReplaceAll(w.transcript.String(), w.dir, "DIR")
	got = random.ReplaceAllString(got, "NONCE")
	got = fileTime.ReplaceAllString(got, "TIME")
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			w.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		w.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		w.Errorf("transcript (-want +got):\n%s", diff)
	}
}

// memory is a Store in memory.
type memory struct {
	*memkv.Client
	w *world
}

func (m memory) Health(context.Context) (Health, error) { return m.w.health, m.w.healthErr }

func (m memory) Close() error { return nil }

// run runs a command line and records its output.
func (w *world) run(line string) {
	w.Helper()
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.Trim(strings.ReplaceAll(args[i], "_", " "), "'")
	}
	fmt.Fprintf(&w.transcript, "$ tenon-cluster %s\n", strings.ReplaceAll(line, "_", " "))
	environment := map[string]string{
		"TENON_CLUSTER_DIR": filepath.Join(w.dir, "state"), "TENON_CLUSTER_NODE": "n1",
		"TENON_CLUSTER_SOCKET": filepath.Join(w.dir, "socket"), "SUDO_USER": "alice",
		"TENON_CLUSTER_CONFIG": filepath.Join(w.dir, "cluster.json"),
	}
	status := Run(w.Context(), args, Environment{
		Version: "test", Stdin: strings.NewReader(w.answer), Stdout: &w.transcript, Stderr: &w.transcript,
		Lookup: func(name string) (string, bool) {
			value, ok := environment[name]
			return value, ok
		},
		Connect: func(context.Context, settings.Settings) (Store, error) {
			return memory{w.client, w}, w.connectErr
		},
		Agent: func(context.Context, settings.Settings, *slog.Logger) error {
			return errors.New("no agent")
		},
	})
	w.answer = ""
	if status != 0 {
		fmt.Fprintf(&w.transcript, "exit status %d\n", status)
	}
}

// note writes a comment into the transcript.
func (w *world) note(text string) { fmt.Fprintf(&w.transcript, "# %s\n", text) }

func (w *world) registry(client string) *registry.Registry {
	return registry.New(w.store.Client(client), registry.Options{Cluster: "default"})
}

// must fails the test on an error.
func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// join joins a node and claims blocks of the pool pods for it.
func (w *world) join(name string, blocks ...string) registry.Node {
	w.Helper()
	r := w.registry(name)
	if w.nonce == "" {
		meta, err := r.Meta.Read(w.Context())
		w.must(err)
		w.nonce = meta.Nonce
	}
	s, err := r.Nodes.Join(w.Context(), cluster.Node{Name: name, Identity: "id-" + name, Mode: "auto",
		Store:     w.nonce,
		Addresses: []netip.Addr{netip.MustParseAddr("192.168.7." + name[1:])}}, w.ttl)
	w.must(err)
	w.leases[name] = s
	if len(blocks) == 0 {
		return s.Node
	}
	var prefixes []netip.Prefix
	for _, b := range blocks {
		prefixes = append(prefixes, netip.MustParsePrefix(b))
	}
	n, _, err := r.Blocks.Claim(w.Context(), s.Node, w.pool(), prefixes, "")
	w.must(err)
	return n
}

func (w *world) pool() registry.Pool {
	w.Helper()
	p, err := w.registry("test").Pools.Read(w.Context(), "pods")
	w.must(err)
	return p
}

// files writes the files of node n1 as its agent would.
func (w *world) files() *local.Store {
	w.Helper()
	boot, err := statefile.BootID()
	w.must(err)
	store := local.New(local.Options{Dir: filepath.Join(w.dir, "state"), BootID: boot})
	w.must(store.SetNode(local.Node{Cluster: "default", Name: "n1", Identity: "id-n1", Epoch: 1}))
	_, blocks, err := w.registry("n1").Blocks.Owned(w.Context(), "n1")
	w.must(err)
	p, err := store.Open(w.Context(), "pods", false)
	w.must(err)
	p.State = local.State{Pool: w.pool().Pool, Node: "n1", Epoch: 1, Boot: boot}
	for _, b := range blocks {
		p.State.Blocks = append(p.State.Blocks, local.Block{Block: b.Block.Block,
			Generation: b.Generation, Epoch: b.Epoch, Nonce: b.Nonce, Phase: local.Owned, Since: b.Since})
	}
	w.must(p.Save())
	w.must(p.Close())
	return store
}

// allocate allocates an address on n1.
func (w *world) allocate(store *local.Store, container string) {
	w.Helper()
	p, err := store.Open(w.Context(), "pods", false)
	w.must(err)
	_, err = p.Allocate(w.Context(), local.Request{Owner: ownerOf(container)})
	w.must(err)
	w.must(p.Close())
}

func ownerOf(container string) ipam.Owner {
	return ipam.Owner{Container: container, IfName: "eth0", Network: "pods"}
}

// edit changes the state of the pool on n1.
func (w *world) edit(store *local.Store, change func(*local.State)) {
	w.Helper()
	p, err := store.Open(w.Context(), "pods", false)
	w.must(err)
	change(&p.State)
	w.must(p.Save())
	w.must(p.Close())
}

func TestFirstSteps(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("status")
		w.run("pool create pods 10.64.0.0/20")
		w.run("init")
		w.run("init --json")
		w.run("pool create pods 10.64.0.0/20")
		w.run("pool create pods 10.64.0.0/20")
		w.run("pool create more 10.64.8.0/24")
		w.run("pool create odd 10.65.1.0/20")
		w.run("pool create pods6 fd00:64::/112 --hold 30m")
		w.run("pool create pods6 fd00:64::/112")
		w.run("pool set pods --exclude 10.64.0.0/26,10.64.1.7 --quota ci=2000,*=500 --nodes zone=a")
		w.run("pool set pods --exclude x")
		w.run("pool set pod --max-blocks 4")
		w.run("pool set pods --nodes=")
		w.run("pools")
		w.run("pools --json")
		w.run("status")
		w.run("check")
		w.run("pool delete pods6")
		w.run("pool delete pods6")
		w.run("pool")
		w.run("pool remove x")
		w.run("blocks --pool pods x")
		w.run("confirm --all-nodes --wait 5")
	})
}

func TestNodes(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26", "10.64.5.0/26")
		w.join("n2", "10.64.4.0/26")
		store := w.files()
		w.allocate(store, "web")
		w.allocate(store, "db")
		w.must(store.SetContact())
		w.run("status")
		w.run("blocks")
		w.run("blocks --node n1 --json")
		w.run("blocks --node n3")
		w.run("node list")
		w.run("node drain n2")
		w.run("node undrain n2")
		w.run("node drain n9")
		w.run("check")
		w.run("release --node n2 --evidence 'off'")
		w.run("fence n2 --evidence off")
		w.run("node leave n2")
		w.note("the lease of both nodes ends")
		time.Sleep(time.Minute)
		w.run("status")
		w.run("node list")
		w.run("release --node n2 --dry-run")
		w.run("release --node n2")
		w.answer = "n\n"
		w.run("release --node n2 --evidence 'powered_off'")
		w.run("fence n2 --evidence 'powered_off' --yes")
		w.run("fence n2 --yes")
		w.answer = "y\n"
		w.run("release --node n2 --json")
		w.run("release --node n2")
		w.run("blocks --node n2")
		w.run("blocks")
		w.run("node leave n1")
		w.run("node drain n2")
		w.run("node leave n2 --yes")
		w.run("node list")
		w.run("check")
		w.run("release")
		w.run("release --node n2 --address 10.64.3.70")
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		n := w.join("n1", "10.64.3.64/26")
		_, err := w.registry("n1").Shared.Acquire(w.Context(), n, w.pool(), registry.Hold{Sticky: true,
			Holder: cluster.Holder{Pool: "pods", Addr: netip.MustParseAddr("10.64.9.9"), Node: "n1",
				Network: "pods", Container: "db", IfName: "eth0", Namespace: "shop", Name: "db-0"}})
		w.must(err)
		w.run("blocks")
		w.run("release --address 10.64.9.9")
		w.run("release --address 10.64.9.9 --force --dry-run")
		w.run("release --address 10.64.9.9 --force --yes")
		w.run("release --address 10.64.9.9")
		w.run("release --address 10.64.3.70")
		w.run("release --address 10.64.15.1")
		w.run("release --address 192.0.2.1")
		w.run("release --address web")
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26")
		store := w.files()
		w.allocate(store, "web")
		w.run("check")
		w.note("the node uses a block that it does not own, and forgets its own one")
		w.edit(store, func(s *local.State) {
			s.Blocks[0].Block = netip.MustParsePrefix("10.64.4.0/26")
		})
		w.run("check")
		w.run("check --json")
		w.note("the node has lost a block in use")
		w.edit(store, func(s *local.State) {
			s.Blocks[0].Block, s.Blocks[0].Phase = netip.MustParsePrefix("10.64.3.64/26"), local.Lost
		})
		w.run("check")
	})
}

// answers makes a node answer the questions of operators, as its agent would.
func (w *world) answers(name string, lost ...cluster.Loss) (change func(lost ...cluster.Loss)) {
	w.Helper()
	r := w.registry(name)
	var mu sync.Mutex
	number, err := strconv.Atoi(name[1:])
	w.must(err)
	go func() {
		time.Sleep(time.Duration(number) * 2100 * time.Millisecond) // one after the other
		for last := ""; w.Context().Err() == nil; {
			question, err := r.Questions.Read(w.Context())
			mu.Lock()
			now := lost
			mu.Unlock()
			if err == nil && question != last {
				err = r.Questions.Answer(w.Context(), name, cluster.Answer{Question: question, Lost: now})
				last = question
			}
			if err != nil && w.Context().Err() == nil {
				w.Error(err)
			}
			select {
			case <-time.After(7 * time.Second):
			case <-w.Context().Done():
			}
		}
	}()
	return func(now ...cluster.Loss) {
		mu.Lock()
		defer mu.Unlock()
		lost = now
	}
}

func TestRestored(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.ttl = time.Hour
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26")
		w.join("n2")
		w.join("n3")
		w.registry("n3").Nodes.Leave(w.Context(), w.leases["n3"])
		w.run("confirm")
		w.run("confirm --restored --all-nodes")
		w.run("confirm --restored")
		w.run("check")
		w.run("status")
		w.note("n1 and n2 have no agent that answers, and n3 is off")
		w.run("confirm --wait 3s")
		w.run("confirm --all-nodes --wait 0s --yes")
		addr := netip.MustParseAddr
		w.answers("n1")
		change := w.answers("n2",
			cluster.Loss{Pool: "pods", Block: netip.MustParsePrefix("10.64.1.0/26"), Used: 9,
				Addrs: []netip.Addr{addr("10.64.1.1"), addr("10.64.1.2")}},
			cluster.Loss{Pool: "pods", Block: netip.MustParsePrefix("10.64.2.1/32"), Used: 1,
				Addrs: []netip.Addr{addr("10.64.2.1")}})
		w.note("all agents run, and n2 uses lost addresses")
		w.join("n3")
		w.answers("n3")
		w.run("confirm")
		w.run("confirm --all-nodes --yes")
		w.note("the containers are detached")
		change()
		w.run("confirm --json")
		w.run("confirm")
		w.run("confirm --all-nodes")
		w.run("confirm --all-nodes --yes")
		w.run("confirm --all-nodes")
		w.run("check")
	})
}

func TestCopied(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.join("n1")
		w.run("confirm --node n1 --all-nodes")
		w.run("confirm --node n2")
		w.run("confirm --node n1")
		w.must(w.registry("n1").Nodes.Contest(w.Context(), "n1", "id-n1", "another host has joined"))
		w.run("check")
		w.run("confirm --node n1")
		w.run("confirm --node n1 --yes")
		w.run("check")
	})
}

func TestRejoin(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26")
		store := w.files()
		w.allocate(store, "web")
		w.run("node rejoin")
		time.Sleep(time.Minute)
		w.run("release --node n1 --evidence unreachable --yes")
		w.edit(store, func(s *local.State) { s.Blocks[0].Phase = local.Lost })
		w.run("node rejoin")
		w.run("node rejoin --yes")
		w.run("node reset")
		w.run("node reset --yes")
		w.run("node reset")
	})
}

func TestReset(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26")
		w.allocate(w.files(), "web")
		w.run("node reset --yes")
		w.run("node reset --yes --force")
		w.run("node reset")
	})
}

// hostLocal writes files of host-local and a configuration.
func (w *world) hostLocal(subnet string, reserved map[string]string) {
	w.Helper()
	dir := filepath.Join(w.dir, "networks", "pods")
	w.must(os.MkdirAll(dir, 0o755))
	w.must(os.MkdirAll(filepath.Join(w.dir, "net.d"), 0o755))
	for addr, container := range reserved {
		w.must(os.WriteFile(filepath.Join(dir, addr), []byte(container+"\r\neth0"), 0o644))
	}
	conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge",
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{%s}]]}}]}`,
		filepath.Join(w.dir, "networks"), subnet)
	w.must(os.WriteFile(filepath.Join(w.dir, "net.d", "10-pods.conflist"), []byte(conf), 0o644))
}

// migrate runs the command with the directories of the test.
func (w *world) migrate(flags string) {
	w.Helper()
	line := "migrate " + flags + " --net-dir " + filepath.Join(w.dir, "net.d") + " --data-dir " +
		filepath.Join(w.dir, "networks")
	w.run(line)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.hostLocal(`"subnet": "10.64.0.0/24"`, map[string]string{
			"10.64.0.2": "a", "10.64.0.3": "b", "10.64.0.70": "c", "10.64.0.200": "d"})
		w.run("init")
		w.migrate("--plan")
		w.run("pool create pods 10.64.0.0/20")
		w.migrate("--plan")
		w.migrate("--apply")
		w.join("n1")
		w.files()
		w.migrate("--apply")
		w.note("the agent adopts the blocks")
		store := w.files()
		w.migrate("--plan")
		w.migrate("--apply")
		w.run("blocks")
		w.run("check")
		w.allocate(store, "new")
		w.note("a container got an address after the switch")
		w.migrate("--rollback --yes")
		w.run("node list")
		w.migrate("--plan --apply")
		list, err := filepath.Glob(filepath.Join(w.dir, "networks", "pods", "10.*"))
		w.must(err)
		w.note("host-local has " + fmt.Sprint(len(list)) + " reservations")
		w.run("node undrain n1")
		w.note("a container got an address outside the ranges of host-local")
		w.join("n1", "10.64.8.0/26")
		store = w.files()
		w.edit(store, func(s *local.State) { s.Blocks = s.Blocks[len(s.Blocks)-1:] })
		w.allocate(store, "outside")
		w.migrate("--rollback --yes")
	})
}

// TestRollbackAfterReuse rolls back after the pool has given an address of an ended container to
// another one: the runtime called DEL only with the new configuration.
func TestRollbackAfterReuse(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.hostLocal(`"subnet": "10.64.0.0/24"`, map[string]string{"10.64.0.2": "a", "10.64.0.3": "b"})
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1")
		w.files()
		w.migrate("--apply")
		p, err := w.files().Open(w.Context(), "pods", false)
		w.must(err)
		_, err = p.Release(w.Context(), ownerOf("a"))
		w.must(err)
		_, err = p.Allocate(w.Context(), local.Request{Owner: ownerOf("new"),
			Addr: netip.MustParseAddr("10.64.0.2")})
		w.must(err)
		w.must(p.Close())
		w.migrate("--rollback --yes")
		for _, addr := range []string{"10.64.0.2", "10.64.0.3"} {
			text, err := os.ReadFile(filepath.Join(w.dir, "networks", "pods", addr))
			w.must(err)
			w.note("host-local has " + addr + " for " + strings.Join(strings.Fields(string(text)), " "))
		}
	})
}

func TestMigrateConflicts(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.hostLocal(`"subnet": "10.64.0.0/24", "rangeStart": "10.64.0.10", "rangeEnd": "10.64.0.99"`,
			map[string]string{"10.64.0.20": "a", "10.64.0.65": "gateway", "10.64.0.80": "b"})
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n2", "10.64.0.0/26")
		w.join("n1")
		w.files()
		w.migrate("--plan")
		w.migrate("--plan --json")
		w.migrate("--apply")
		w.must(os.Remove(filepath.Join(w.dir, "networks", "pods", "10.64.0.65")))
		w.must(os.Remove(filepath.Join(w.dir, "networks", "pods", "10.64.0.20")))
		w.note("the ranges of this node cover the block in part")
		w.migrate("--plan")
		w.migrate("--apply")
		w.migrate("--plan")
		w.run("blocks")
		w.run("check")
	})
}

// TestErrors: errors of etcd come with advice.
func TestErrors(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		for _, err := range []error{rpctypes.ErrNoSpace, rpctypes.ErrPermissionDenied,
			rpctypes.ErrUserEmpty, rpctypes.ErrNoLeader} {
			w.note(err.Error())
			w.client.Fault(func(memkv.Call) memkv.Fault { return memkv.Fault{Error: err} })
			w.run("pools")
			w.run("pool set pods --max-blocks 4")
		}
		w.note("no quorum")
		w.health.Quorum, w.health.Leader = false, ""
		w.run("status")
		w.note("no answer")
		w.client.Partition(true)
		w.healthErr = context.DeadlineExceeded
		w.run("status")
		w.run("status --json")
		w.run("status --local")
		w.run("agent")
	})
}

// TestStatusWithoutConnection: the state of the node is shown although etcd refuses the login.
func TestStatusWithoutConnection(t *testing.T) {
	t.Parallel()
	scenario(t, func(w *world) {
		w.run("init")
		w.run("pool create pods 10.64.0.0/20")
		w.join("n1", "10.64.3.64/26")
		store := w.files()
		w.allocate(store, "web")
		w.must(store.SetContact())
		w.connectErr = rpctypes.ErrAuthFailed
		w.run("status")
		w.run("status --json")
		w.run("status --local")
		w.run("pools")
	})
}

// TestStatusOfAnAgentThatHangs: the time for the agent does not shorten the look at the files.
func TestStatusOfAnAgentThatHangs(t *testing.T) {
	t.Parallel()
	conf := settings.Settings{Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "socket")}
	l, err := net.Listen("unix", conf.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	store := local.New(local.Options{Dir: conf.Dir, BootID: "boot"})
	if err := store.SetNode(local.Node{Name: "n1"}); err != nil {
		t.Fatal(err)
	}
	reservations := filepath.Join(conf.Dir, "addresses", "pods")
	if err := os.MkdirAll(reservations, 0o755); err != nil {
		t.Fatal(err)
	}
	reservation := filepath.Join(reservations, "10.64.0.2")
	if err := os.WriteFile(reservation, []byte("c1\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := readNode(t.Context(), &session{settings: conf})
	if r.Agent || len(r.Problems) != 1 || len(r.Pools) != 1 || r.Pools[0].Used != 1 {
		t.Errorf("%+v", r)
	}
}

func TestVersionWarnings(t *testing.T) {
	t.Parallel()
	for version, count := range map[string]int{"3.4.23": 4, "3.4.31": 3, "3.4.36": 2, "3.4.40": 1,
		"3.4.42": 0, "3.4.45": 0, "3.5.1": 0, "3.7.3": 0, "": 0} {
		if got := versionWarnings(version); len(got) != count {
			t.Errorf("%s: %q", version, got)
		}
	}
}
