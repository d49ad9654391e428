package plugins

import (
	"fmt"
	"strings"

	"github.com/tenon-cni/tenon/conformance/report"
	"github.com/tenon-cni/tenon/internal/judge/script"
)

// trafficPath is a program for real traffic between namespaces:
//
//	traffic serve NAME PROTOCOL:ADDRESS:PORT...
//	traffic ask PROTOCOL SOURCE PORT DESTINATION PORT
//
// A server answers each connection or datagram with its name and the address of the client, and
// creates the file ready.NAME. A client prints the answer, or the error.
const trafficPath = script.Dir + "/traffic"

const trafficProgram = `#!/usr/bin/perl
use strict;
use warnings;
use IO::Select;
use IO::Socket::IP;

my $verb = shift @ARGV;
if ($verb eq 'serve') {
	my $name = shift @ARGV;
	my $all = IO::Select->new;
	for (@ARGV) {
		my ($protocol, $address, $port) = /^(\w+):(.*):(\d+)$/;
		my @listen = $protocol eq 'tcp' ? (Listen => 8, ReuseAddr => 1) : ();
		$all->add(IO::Socket::IP->new(Proto => $protocol, LocalHost => $address, LocalPort => $port, @listen)
			or die "$_: $@\n");
	}
	open my $ready, '>', "` + script.Dir + `/ready.$name" or die;
	while (1) {
		for my $s ($all->can_read) {
			if ($s->sockopt(SO_TYPE) == SOCK_STREAM) {
				my $c = $s->accept or next;
				print $c "$name ", $c->peerhost, "\n";
				close $c;
			} elsif (defined $s->recv(my $data, 100)) {
				$s->send("$name " . $s->peerhost . "\n");
			}
		}
	}
}
my ($protocol, $source, $from, $address, $port) = @ARGV;
$SIG{ALRM} = sub { print "no answer\n"; exit };
alarm 20;
my $s = IO::Socket::IP->new(Proto => $protocol, LocalHost => $source, LocalPort => $from,
	PeerHost => $address, PeerPort => $port);
if (!$s) {
	print "$@\n";
	exit;
}
$s->send("x") if $protocol eq 'udp';
my $known = $s->recv(my $answer, 100);
print defined $known && length $answer ? $answer : "$!\n";
`

// needsTraffic fails if the host lacks what the program needs.
const needsTraffic = "perl -MIO::Select -MIO::Socket::IP -e 1"

// server returns a command that starts a server in a container, or in the host if that is empty.
func server(container, name string, listen ...string) string {
	return inside(container, fmt.Sprintf("%s serve %s %s", trafficPath, name, strings.Join(listen, " ")))
}

// inside returns a command that runs in a container, or in the host if that is empty.
func inside(container, command string) string {
	if container == "" {
		return command
	}
	return "ip netns exec " + container + " " + command
}

// servers returns a step that starts servers, which the commands describe, and waits for them.
func servers(names []string, commands ...string) script.Step {
	ready := make([]string, len(names))
	for i, n := range names {
		ready[i] = "test -e " + script.Dir + "/ready." + n
	}
	return script.Step{Daemon: strings.Join(commands, " &\n") + " &\nwait", Shell: strings.Join(ready, "\n"), Quiet: true}
}

// ask returns a step in which a client sends a request. Source and destination are addresses with
// ports: "10.77.0.2 0".
func ask(name, container, protocol, source, destination string) script.Step {
	return look(name, inside(container, fmt.Sprintf("%s ask %s %s %s", trafficPath, protocol, source, destination)))
}

// look returns a step that executes a text for sh(1). The judgment gets its output with
// [Judgment.seen].
func look(name, shell string) script.Step {
	return quiet(script.Call{Name: name, Path: "/bin/sh", Args: []string{"-euc", shell},
		Env: []string{"PATH=" + searchPath}})
}

// seen returns the output of a look.
func (j *Judgment) seen(name string) string {
	r, _ := j.Call(name)
	return strings.TrimSpace(string(r.Stdout) + string(r.Stderr))
}

// answers expects that the answer to an ask starts with a text.
func (j *Judgment) answers(name, want string, v Verdict) bool {
	got := j.seen(name)
	v.Expected, v.Actual = "an answer of "+want, fmt.Sprintf("%q", got)
	return j.Expect(strings.HasPrefix(got+" ", want+" "), v)
}

// unanswered expects that an ask has no answer of a server.
func (j *Judgment) unanswered(name, server string, v Verdict) bool {
	got := j.seen(name)
	v.Expected, v.Actual = "no answer of "+server, fmt.Sprintf("%q", got)
	return j.Expect(!strings.HasPrefix(got, server+" "), v)
}

// withTraffic adds the program to a scenario.
func withTraffic(s *script.Scenario) *script.Scenario {
	s.Files = append(s.Files, script.File{Path: trafficPath, Data: trafficProgram, Mode: 0o755})
	return s
}

// severe is the severity of findings about traffic of other containers.
const severe = report.Critical
