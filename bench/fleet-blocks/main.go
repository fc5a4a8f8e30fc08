// SPDX-License-Identifier: Apache-2.0 OR MIT

// fleet-blocks writes the fleet of bench/screen_fleet.py as blocks of Prometheus, with the library that Prometheus itself
// writes them with: promtool reads its whole input anew for each block, which takes hours for a week.
//
//	go run . -data FOLDER -days 7 -containers 10000 -interval 30 < fleet.json
//
// One block for each day, a day for each CPU at a time. The same arguments make the same samples.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

const dayMs = 24 * 3600 * 1000

type kind struct {
	Limit     *float64 `json:"limit"`
	Share     float64  `json:"share"`
	Throttled float64  `json:"throttled"`
	Request   *float64 `json:"request"`
}

type fleet struct {
	BeginS      int64  `json:"begin_s"`
	PeriodsPerS int64  `json:"periods_per_s"`
	SettingsS   int64  `json:"settings_s"`
	InNamespace int    `json:"in_namespace"`
	Kinds       []kind `json:"kinds"`
}

// useS is the CPU time that container i has used: the integral of a use that swings by a tenth.
func useS(k kind, i int, atS float64) float64 {
	limit := 1.0
	if k.Limit != nil {
		limit = *k.Limit
	}
	rate := k.Share * limit
	used := rate * atS
	if k.Share < 0.9 {
		turn := 2 * math.Pi / float64(1500+i%977)
		used += 0.1 * rate / turn * (math.Cos(float64(i)) - math.Cos(turn*atS+float64(i)))
	}
	// As cAdvisor's text is read back: microseconds.
	return math.Round(used*1e6) / 1e6
}

// adder appends to one series, which it looks up once.
type adder struct {
	labels labels.Labels
	ref    storage.SeriesRef
	value  func(sinceS int64) float64
	everyS int64
}

func series(f fleet, i int, intervalS int64) []adder {
	k := f.Kinds[i%len(f.Kinds)]
	pod := []string{"namespace", fmt.Sprintf("team-%d", i/f.InNamespace), "pod", fmt.Sprintf("pod-%d", i)}
	add := func(name string, everyS int64, value func(int64) float64, more ...string) adder {
		all := append([]string{"__name__", name}, append(pod, more...)...)
		return adder{labels: labels.FromStrings(all...), value: value, everyS: everyS}
	}
	constant := func(value float64) func(int64) float64 { return func(int64) float64 { return value } }
	all := []adder{
		add("container_cpu_usage_seconds_total", intervalS,
			func(s int64) float64 { return useS(k, i, float64(s)) }, "container", "app"),
		add("kube_pod_owner", f.SettingsS, constant(1), "owner_kind", "StatefulSet", "owner_name", fmt.Sprintf("app-%d", i)),
	}
	if k.Limit != nil {
		all = append(all,
			add("container_cpu_cfs_periods_total", intervalS,
				func(s int64) float64 { return float64(s * f.PeriodsPerS) }, "container", "app"),
			add("container_cpu_cfs_throttled_periods_total", intervalS,
				func(s int64) float64 { return math.RoundToEven(float64(s*f.PeriodsPerS) * k.Throttled) }, "container", "app"))
	}
	for name, value := range map[string]*float64{"limits": k.Limit, "requests": k.Request} {
		if value != nil {
			all = append(all, add("kube_pod_container_resource_"+name, f.SettingsS, constant(*value),
				"container", "app", "resource", "cpu", "unit", "core"))
		}
	}
	return all
}

func writeDay(f fleet, data string, containers int, day int64, intervalS int64) error {
	// Twice a block's length: series after series, a sample may be a whole block older than the newest.
	writer, err := tsdb.NewBlockWriter(log.NewNopLogger(), data, 2*dayMs)
	if err != nil {
		return err
	}
	defer writer.Close()
	ctx := context.Background()
	for i := 0; i < containers; i++ {
		app := writer.Appender(ctx)
		for _, one := range series(f, i, intervalS) {
			for s := day * 86400; s < (day+1)*86400; s += one.everyS {
				if one.ref, err = app.Append(one.ref, one.labels, (f.BeginS+s)*1000, one.value(s)); err != nil {
					return fmt.Errorf("%s: %w", one.labels, err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	_, err = writer.Flush(ctx)
	return err
}

func main() {
	data := flag.String("data", "", "folder of Prometheus' blocks")
	days := flag.Int64("days", 7, "a block each")
	containers := flag.Int("containers", 10000, "")
	intervalS := flag.Int64("interval", 30, "seconds between samples")
	flag.Parse()
	die := func(err error) {
		fmt.Fprintln(os.Stderr, "fleet-blocks:", err)
		os.Exit(1)
	}
	var f fleet
	if err := json.NewDecoder(os.Stdin).Decode(&f); err != nil {
		die(err)
	}
	if *data == "" || *days < 1 || *containers < 1 || *intervalS < 1 || len(f.Kinds) == 0 {
		die(fmt.Errorf("allowed: -data FOLDER, one day, container, second and kind or more"))
	}
	next := make(chan int64)
	var workers sync.WaitGroup
	for range make([]struct{}, runtime.NumCPU()) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for day := range next {
				if err := writeDay(f, *data, *containers, day, *intervalS); err != nil {
					die(err)
				}
				fmt.Fprintln(os.Stderr, "day "+strconv.FormatInt(day+1, 10)+" is written")
			}
		}()
	}
	for day := int64(0); day < *days; day++ {
		next <- day
	}
	close(next)
	workers.Wait()
}
