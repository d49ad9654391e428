// Package usage keeps samples of the number of claimed blocks of each pool, and forecasts when a
// pool is full. The agent of each node appends a sample every hour to a file in its directory, from
// the view of the cluster that it watches anyway: samples cost no request to etcd and survive a
// restart of either. A forecast needs samples of at least one day.
package usage

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenon-cni/tenon/internal/statefile"
)

const (
	// Interval is the least time between two samples.
	Interval = time.Hour
	// keep is the age at which samples are dropped.
	keep = 14 * 24 * time.Hour
	// least is the least time that samples must span for a forecast.
	least = 24 * time.Hour

	fileName = "usage.json"
)

// Sample is the number of claimed blocks of each pool at one time.
type Sample struct {
	At     time.Time         `json:"at"`
	Blocks map[string]uint64 `json:"blocks"`
}

// Read returns the samples of a directory, the oldest first, or none if there is no file.
func Read(dir string) ([]Sample, error) {
	content, err := os.ReadFile(filepath.Join(dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var samples []Sample
	if err := json.Unmarshal(content, &samples); err != nil {
		return nil, err
	}
	return samples, nil
}

// Record appends a sample unless the last one is younger than Interval. It drops samples that are
// too old, and those with a later time than now, which another clock made.
func Record(dir string, now time.Time, blocks map[string]uint64) error {
	samples, err := Read(dir)
	if err != nil {
		samples = nil // a damaged file costs a forecast, and nothing else
	}
	samples = slices.DeleteFunc(samples, func(s Sample) bool {
		return s.At.After(now) || now.Sub(s.At) > keep
	})
	if n := len(samples); n > 0 && now.Sub(samples[n-1].At) < Interval {
		return nil
	}
	samples = append(samples, Sample{now.UTC().Truncate(time.Second), blocks})
	content, err := json.Marshal(samples)
	if err != nil {
		return err
	}
	return statefile.Replace(filepath.Join(dir, fileName), content, 0o644, nil)
}

// Forecast is the growth of a pool and its consequence.
type Forecast struct {
	PerDay float64       `json:"blocksPerDay"`
	Over   time.Duration `json:"-"` // the time that the samples span
	// Full is the time in which the pool is full at this growth; 0 if it does not grow.
	Full time.Duration `json:"-"`
}

// Of returns the forecast of a pool with a number of blocks, of which claimed are in use. The growth
// is the slope of the line of least squares through the samples. ok is false without samples of at
// least one day.
func Of(samples []Sample, pool string, claimed, total uint64) (f Forecast, ok bool) {
	var days, blocks []float64
	var first time.Time
	for _, s := range samples {
		n, known := s.Blocks[pool]
		if !known {
			continue
		}
		if len(days) == 0 {
			first = s.At
		}
		f.Over = s.At.Sub(first)
		days, blocks = append(days, f.Over.Hours()/24), append(blocks, float64(n))
	}
	if f.Over < least {
		return f, false
	}
	f.PerDay = slope(days, blocks)
	if f.PerDay > 0 && claimed < total {
		full := float64(total-claimed) / f.PerDay * float64(24*time.Hour)
		const century = 100 * 365 * 24 * time.Hour
		if full < float64(century) {
			f.Full = time.Duration(full)
		}
	}
	return f, true
}

// slope returns the slope of the line of least squares.
func slope(x, y []float64) float64 {
	meanX, meanY := mean(x), mean(y)
	covariance, variance := 0.0, 0.0
	for i := range x {
		covariance += (x[i] - meanX) * (y[i] - meanY)
		variance += (x[i] - meanX) * (x[i] - meanX)
	}
	if variance == 0 {
		return 0
	}
	return covariance / variance
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
