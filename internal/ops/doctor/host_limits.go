package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tenon-cni/tenon/internal/ops/plural"
)

// Shares of a limit from which a table counts as nearly full.
const nearlyFull = 0.9

// number returns a numeric setting of all namespaces or of the host.
func (s *State) number(name string) (n int64, ok bool) {
	text := cmp.Or(s.Host.Settings[name], s.setting(name))
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// usage judges a count against a limit.
func usage(count, limit int64) (sev Severity, bad bool) {
	switch {
	case limit <= 0 || float64(count) < nearlyFull*float64(limit):
		return "", false
	case count >= limit:
		return Error, true
	}
	return Warning, true
}

// sysctlFix returns the fix that sets a sysctl now and at boot.
func sysctlFix(effect string, settings ...string) Fix {
	return Fix{Command: fmt.Sprintf("sysctl -w %s, and the same in /etc/sysctl.d",
		strings.Join(settings, " ")), Effect: effect}
}

func inotify(_ context.Context, s *State) (list []Finding, err error) {
	const name, watchName = "fs.inotify.max_user_instances", "fs.inotify.max_user_watches"
	err = s.needs(partInotify)
	for _, u := range s.Node.Inotify {
		for _, x := range []struct {
			setting, what string
			count         int
			least         int64
		}{{name, "instances", u.Instances, 128}, {watchName, "watches", u.Watches, 8192}} {
			limit, known := s.number(x.setting)
			sev, bad := usage(int64(x.count), limit)
			if !known || !bad {
				continue
			}
			list = append(list, Finding{
				ID: "limits.inotify-" + x.what, Severity: sev,
				Title: fmt.Sprintf(
					"%d of %d inotify %s of UID %d are in use",
					x.count,
					limit,
					x.what,
					u.UID,
				),
				Text: "Runtimes and the kubelet then miss changes of configurations and log " +
					"files; programs report \"too many open files\" or \"no space left on " +
					"device\".",
				Owner: "kernel",
				Evidence: []Evidence{
					{"sysctl " + x.setting, fmt.Sprintf("%s = %d", x.setting, limit)},
					{"find /proc/*/fd -lname anon_inode:inotify | wc -l", ""},
				},
				Fix: []Fix{sysctlFix("", fmt.Sprintf("%s=%d", x.setting, max(x.least, 4*limit)))},
			})
		}
	}
	return list, err
}

func neighbours(_ context.Context, s *State) (list []Finding, err error) {
	if _, known := s.number("net.ipv4.neigh.default.gc_thresh3"); !known {
		return nil, Skip("gc_thresh3 is known only to the first network namespace of the machine")
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		prefix := "net." + family + ".neigh.default.gc_thresh"
		limit, known := s.number(prefix + "3")
		count := s.neighbourEntries(family)
		sev, bad := usage(count, limit)
		if !known || !bad {
			continue
		}
		list = append(list, Finding{
			ID: "limits.neighbours", Severity: sev,
			Title: fmt.Sprintf(
				"%d of %d neighbour entries of %s are in use (gc_thresh3)",
				count,
				limit,
				map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[family],
			),
			Text: "All network namespaces share this table. When it is full, packets to new " +
				"neighbours are dropped, and the kernel logs \"neighbor table overflow\".",
			Owner: "kernel",
			Evidence: []Evidence{
				{"sysctl " + prefix + "3", fmt.Sprintf("%s3 = %d", prefix, limit)},
				{
					"cat /proc/net/stat/" + neighbourFiles[family],
					"",
				},
			},
			Fix: []Fix{sysctlFix(
				"",
				fmt.Sprintf("%s1=%d", prefix, max(1024, count)),
				fmt.Sprintf(
					"%s2=%d",
					prefix,
					max(4096, 2*count),
				),
				fmt.Sprintf("%s3=%d", prefix, max(8192, 4*count)),
			)},
		})
	}
	return list, nil
}

// neighbourEntries returns the entries of a neighbour table: as the kernel counts them or, in
// other namespaces than the first, the entries that could be listed.
func (s *State) neighbourEntries(family string) int64 {
	if n, ok := s.Node.Neighbours[family]; ok {
		return n
	}
	var n int64
	for _, ns := range s.Host.Namespaces {
		for _, x := range ns.Neighbours {
			if x.Addr.Is4() == (family == "ipv4") && x.State != "permanent" && x.State != "noarp" {
				n++
			}
		}
	}
	return n
}

func conntrack(_ context.Context, s *State) (list []Finding, err error) {
	const name = "net.netfilter.nf_conntrack_max"
	for i := range s.Host.Namespaces {
		n := &s.Host.Namespaces[i]
		count, _ := strconv.ParseInt(n.Settings["net.netfilter.nf_conntrack_count"], 10, 64)
		limit, err := strconv.ParseInt(n.Settings[name], 10, 64)
		sev, bad := usage(count, limit)
		if err != nil || !bad {
			continue
		}
		where := ""
		if n != s.Host.Own() {
			where = " of " + s.Name(n)
		}
		state := "full"
		if sev == Warning {
			state = "nearly full"
		}
		list = append(list, Finding{
			ID: "limits.conntrack", Severity: sev,
			Title: fmt.Sprintf("conntrack%s is %s: %d of %d entries", where, state, count, limit),
			Text: "When it is full, new connections time out while old ones live, and the " +
				"kernel logs \"nf_conntrack: table full, dropping packet\". Find the source of " +
				"the entries before you raise the limit.",
			Owner: "kernel",
			Evidence: []Evidence{
				{"sysctl net.netfilter.nf_conntrack_count " + name,
					fmt.Sprintf("net.netfilter.nf_conntrack_count = %d", count)},
				{"conntrack -L | awk '{print $4, $5}' | sort | uniq -c | sort -n | tail", ""},
			},
			Fix: []Fix{
				sysctlFix(
					"uses 320 bytes of memory per entry",
					fmt.Sprintf("%s=%d", name, max(262144, 2*limit)),
				),
			},
		})
	}
	return append(list, s.slowTable()...), nil
}

// slowTable reports a hash table of connections with long lists.
func (s *State) slowTable() []Finding {
	const most = 8 // entries in a bucket
	count, _ := s.number("net.netfilter.nf_conntrack_count")
	buckets, ok := s.number("net.netfilter.nf_conntrack_buckets")
	if !ok || buckets == 0 || count < most*buckets {
		return nil
	}
	return []Finding{{
		ID: "limits.conntrack-buckets", Severity: Warning,
		Title: fmt.Sprintf(
			"conntrack keeps %d entries in %d buckets; each packet searches long lists",
			count,
			buckets,
		),
		Owner: "kernel",
		Evidence: []Evidence{
			{
				"sysctl net.netfilter.nf_conntrack_buckets",
				fmt.Sprintf("net.netfilter.nf_conntrack_buckets = %d", buckets),
			},
		},
		Fix: []Fix{
			sysctlFix(
				"",
				fmt.Sprintf("net.netfilter.nf_conntrack_buckets=%d", max(count/2, buckets*4)),
			),
		},
	}}
}

// conntrackDrops reports packets that conntrack has dropped since boot. They are information: the
// counters do not say when.
func conntrackDrops(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partConntrack); err != nil {
		return nil, err
	}
	for _, x := range []struct{ counter, id, text string }{
		{"drop", "limits.conntrack-drops", "because the table was full or memory was short"},
		{"insert_failed", "limits.conntrack-races",
			"because another packet of the same flow came first; DNS over UDP then waits for " +
				"its time-out (5 s)"},
	} {
		const least = 10 // a few are normal
		if n := s.Node.Conntrack[x.counter]; n >= least {
			list = append(list, Finding{
				ID: x.id, Severity: Info,
				Title: fmt.Sprintf(
					"conntrack has dropped %s since boot %s",
					plural.Count(int(n), "packet"),
					x.text,
				),
				Owner:    "kernel",
				Evidence: []Evidence{{"conntrack -S", fmt.Sprintf("%s=%d in all", x.counter, n)}},
			})
		}
	}
	return list, nil
}

func openFiles(_ context.Context, s *State) (list []Finding, err error) {
	fields := strings.Fields(s.Host.Settings["fs.file-nr"])
	limit, known := s.number("fs.file-max")
	if len(fields) == 0 || !known {
		return nil, Skip("fs.file-nr cannot be read")
	}
	count, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return nil, err
	}
	if sev, bad := usage(count, limit); bad {
		list = append(list, Finding{
			ID: "limits.files", Severity: sev,
			Title: fmt.Sprintf("%d of %d files of this host are open", count, limit),
			Text:  "When none is left, programs fail with \"too many open files in system\".",
			Owner: "kernel",
			Evidence: []Evidence{
				{"sysctl fs.file-nr", "fs.file-nr = " + s.Host.Settings["fs.file-nr"]},
			},
			Fix: []Fix{sysctlFix("", fmt.Sprintf("fs.file-max=%d", 2*limit))},
		})
	}
	return list, nil
}

// earliest is a time before the first release of Tenon.
var earliest = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func clock(_ context.Context, s *State) (list []Finding, err error) {
	now := s.Host.Time
	if now.Before(earliest) {
		return []Finding{{
			ID: "clock.past", Severity: Warning,
			Title: fmt.Sprintf("the clock of this host says %s", now.Format(time.DateOnly)),
			Text: "Certificates appear to be not yet valid, and ages of leases and attachments " +
				"are wrong.",
			Evidence: []Evidence{{"date -u", now.Format(time.DateTime)}},
			Fix: []Fix{
				{Command: "set the clock: chronyc makestep, or timedatectl set-ntp true"},
			},
		}}, nil
	}
	var future []string
	for _, rec := range s.Records {
		if rec.Created.After(now.Add(time.Minute)) {
			future = append(future, rec.Attachment.Container)
		}
	}
	if len(future) > 0 {
		list = append(list, Finding{
			ID: "clock.back", Severity: Warning,
			Title: fmt.Sprintf(
				"%s created later than now; the clock went back",
				were(len(future), "attachment"),
			),
			Text:     "Ages are wrong, and cleaning by age keeps these attachments too long.",
			Affects:  future,
			Evidence: []Evidence{{"date -u", now.Format(time.DateTime)}},
			Fix: []Fix{
				{Command: "set the clock: chronyc makestep, or timedatectl set-ntp true"},
			},
		})
	}
	return list, nil
}

func were(n int, what string) string {
	verb := " were"
	if n == 1 {
		verb = " was"
	}
	return plural.Count(n, what) + verb
}

// boots compares attachment records with the boot of the kernel.
func boots(_ context.Context, s *State) (list []Finding, err error) {
	if s.Host.BootID == "" {
		return []Finding{{
			ID: "clock.boot-id", Severity: Warning,
			Title: "this host has no boot ID, so attachments of an earlier boot look like " +
				"current ones",
			Evidence: []Evidence{{"cat /proc/sys/kernel/random/boot_id", ""}},
			Fix:      []Fix{{Command: "mount /proc with /proc/sys/kernel/random"}},
		}}, nil
	}
	if err := s.needs(partBoot); err != nil {
		return nil, err
	}
	var names []string
	for _, rec := range s.Records {
		if rec.BootID != "" && rec.BootID != s.Host.BootID &&
			rec.Created.After(s.Node.Boot.Add(time.Minute)) {
			names = append(names, rec.Attachment.Container)
		}
	}
	if len(names) > 0 {
		list = append(list, Finding{
			ID: "clock.boot", Severity: Warning,
			Title: fmt.Sprintf("%s created in an earlier boot, at a time after this one began (%s)",
				were(len(names), "attachment"), s.Node.Boot.Format(time.DateTime)),
			Text: "The clock has changed, or the state directory comes from another host, for " +
				"example from an image of a virtual machine.",
			Affects:  names,
			Evidence: []Evidence{{"uptime -s", s.Node.Boot.Format(time.DateTime)}},
			Fix: []Fix{
				{Command: "tenon prune", Effect: "detaches containers without a namespace"},
			},
		})
	}
	return list, nil
}

func features(_ context.Context, s *State) (list []Finding, err error) {
	if err := s.needs(partFeatures); err != nil {
		return nil, err
	}
	for _, x := range s.Node.Lacking {
		list = append(list, Finding{
			ID: "kernel.feature", Severity: Error,
			Title:    fmt.Sprintf("the kernel lacks %s, which %s", x.Feature, need(x.Networks)),
			Text:     x.Feature.Help(),
			Affects:  x.Networks,
			Owner:    "kernel",
			Evidence: []Evidence{{"tenon status " + x.Networks[0], ""}},
			Fix: []Fix{
				{
					Command: "install or load the feature, or change the network: tenon net " +
						"show " + x.Networks[0],
				},
			},
		})
	}
	return list, nil
}

func need(networks []string) string {
	if len(networks) == 1 {
		return "network " + networks[0] + " needs"
	}
	return "networks " + strings.Join(networks, ", ") + " need"
}
