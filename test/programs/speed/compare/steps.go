package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

const chain = "bridge + host-local + ipMasq + portmap"

type bench struct {
	options
	sides [3]*side
	rows  []row
}

func (b *bench) stop() error {
	var errs []error
	for _, s := range b.sides {
		if s != nil {
			errs = append(errs, s.stop())
		}
	}
	return errors.Join(errs...)
}

// alternate attaches and removes one container after another, in turn on all sides. The first
// container of a side makes the bridge and the rules of the network and does not count.
func (b *bench) alternate() error {
	var setups, removes, processor [3][]time.Duration
	var before [3]time.Duration
	for round := range 1 + b.repeats(60, 12) {
		for turn := range b.sides {
			i := (round + turn) % len(b.sides)
			r, err := b.sides[i].attach(1, 1)
			if err != nil {
				return err
			}
			if round > 0 {
				setups[i], removes[i] = append(setups[i], r.Setups...), append(removes[i], r.Removes...)
				processor[i] = append(processor[i], r.Own+r.Children-before[i])
			}
			before[i] = r.Own + r.Children
		}
	}
	b.record("Setup", setups)
	b.record("Remove", removes)
	b.record("Setup and Remove: processor time", processor)
	return nil
}

// rate measures attachments (Setup and Remove) per second with a fixed number in progress.
func (b *bench) rate() error {
	const workers, each = 16, 2
	var perSecond [3][]float64
	for range b.repeats(5, 1) {
		for i, s := range b.sides {
			r, err := s.attach(workers, each)
			if err != nil {
				return err
			}
			perSecond[i] = append(perSecond[i], workers*each/r.Elapsed.Seconds())
		}
	}
	var r row
	r.What, r.Unit = fmt.Sprintf("Setup and Remove: %d at a time", workers), "/s"
	for i := range r.Values {
		r.Values[i] = median(perSecond[i])
		r.Ratios[i] = r.Values[i] / r.Values[0]
	}
	b.add(r)
	return nil
}

// sizes compares the sizes of the programs.
func (b *bench) sizes() error {
	r := row{What: "size of the program", Unit: "MiB"}
	for i, s := range b.sides {
		info, err := os.Stat(s.program)
		if err != nil {
			return err
		}
		r.Values[i] = float64(info.Size()) / (1 << 20)
		r.Ratios[i] = r.Values[0] / r.Values[i]
	}
	b.add(r)
	return nil
}
