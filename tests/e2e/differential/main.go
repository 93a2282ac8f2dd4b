// Command differential sends random sequences of requests for Leases to two servers at once, kube-apiserver with its
// own Leases and ours. It reports where the answers differ. First it compares what both servers publish as OpenAPI.
//
// A sequence has two namespaces on both servers. Its requests run in lockstep: both servers answer one before the next is
// sent. Values that must differ (UIDs, versions, times, generated names, tokens) are replaced by names, numbered in the
// order of appearance. The rest must be equal byte for byte. The seed determines the requests of a sequence. They refer to
// versions, UIDs and objects by the order in which they were seen, such as "the last version of l1 but one". Each server
// gets its own values. So a sequence can be repeated, also without some of its steps.
//
//	differential -builtin KUBECONFIG -server KUBECONFIG [-n 1000] [-seed 1] [-steps 24] [-parallel 16] [-shards]
//	differential -builtin KUBECONFIG -server KUBECONFIG -n 1 -seed 4711 -steps 13 -v     repeats one sequence
//
// The exit status is 1 if there was a difference that none of known.go, known_1_34.go and openapi.go names. A sequence
// that differs is repeated twice. If it does not differ again, the difference is printed as one that occurred only once.
// The exit status is also 1 if more than one sequence, and more than one in 200, differed only once.
//
// No other client may change the Leases of the two namespaces. So kube-controller-manager, which collects garbage, must
// not run meanwhile.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	builtin := flag.String("builtin", "", "kubeconfig of kube-apiserver")
	server := flag.String("server", "", "kubeconfig of our server")
	count := flag.Int64("n", 1000, "number of sequences")
	seed := flag.Int64("seed", 1, "seed of the first sequence; each further one has the next")
	steps := flag.Int("steps", 24, "requests in a sequence; fewer run its beginning")
	parallel := flag.Int("parallel", 16, "sequences that run at the same time")
	shards := flag.Bool("shards", false, "send shard selectors too; both servers must have the feature gate ShardedListAndWatch")
	limit := flag.Int("examples", 20, "differences that are shown in full")
	verbose := flag.Bool("v", false, "show every request and its answer")
	flag.Parse()
	if *builtin == "" || *server == "" || flag.NArg() != 0 || *count < 1 || *steps < 1 || *parallel < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := run(ctx, *builtin, *server, *seed, *count, *steps, *shards, min(*parallel, int(*count)), *limit, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	report.print(os.Stdout)
	if report.failed() {
		os.Exit(1)
	}
}

// run runs the sequences on workers, each with two namespaces.
func run(ctx context.Context, builtin, server string, seed, count int64, steps int, shards bool, parallel, examples int, verbose bool) (*report, error) {
	began := time.Now()
	both, err := connect(builtin, server)
	if err != nil {
		return nil, err
	}
	if err := makeNamespaces(ctx, both, parallel); err != nil {
		return nil, err
	}
	known, is134, err := knownOf(ctx, both[0])
	if err != nil {
		return nil, err
	}
	found := newReport(examples)
	if err := compareOpenAPI(ctx, both, is134, found); err != nil {
		return nil, err
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	broken := make(chan error, parallel)
	for number := range parallel {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for ctx.Err() == nil {
				at := next.Add(1) - 1
				if at >= count {
					return
				}
				sequence := generate(seed+at, steps, shards)
				if is134 {
					sequence = without134(sequence)
				}
				run := &execution{both: both, known: known, place: number, verbose: verbose}
				if err := run.check(ctx, sequence, found); err != nil {
					broken <- fmt.Errorf("sequence %d: %w", sequence.seed, err)
					return
				}
			}
		}()
	}
	workers.Wait()
	select {
	case err := <-broken:
		return nil, err
	default:
	}
	found.took = time.Since(began)
	return found, ctx.Err()
}
