package watch

import (
	"context"
	"time"

	"github.com/tenon-cni/tenon/internal/firewalld"
)

// busAttempts is how often watch tries to connect to the system bus, with growing pauses of
// together half a minute. Then it waits for a request to reload, because most hosts without a bus
// never get one.
const busAttempts = 5

// watchFirewalld returns a channel with what firewalld did, as a phrase. Without a system bus it
// has no values; the notifications of nftables remain.
func (w *watcher) watchFirewalld(ctx context.Context) <-chan string {
	news := make(chan string)
	go func() {
		for attempt := 0; ; attempt++ {
			if w.untilBusEnds(ctx, news) {
				attempt = 0
			}
			var pause <-chan time.Time // none after the last attempt
			if attempt < busAttempts {
				pause = time.After(time.Second << attempt)
			}
			select {
			case <-pause: // the bus may start later, or again
			case <-w.again:
				attempt = 0
			case <-ctx.Done():
				return
			}
		}
	}()
	return news
}

// untilBusEnds sends what firewalld does until the bus closes the connection or ctx is done. It
// returns false if it could not connect.
func (w *watcher) untilBusEnds(ctx context.Context, news chan<- string) (connected bool) {
	conn, err := firewalld.Open(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	err = conn.Watch(ctx, func(what string) {
		select {
		case news <- "firewalld " + what:
		case <-ctx.Done():
		}
	})
	return err == nil
}
