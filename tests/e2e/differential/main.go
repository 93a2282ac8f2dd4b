// Command differential sends random sequences of requests for Leases to two servers: kube-apiserver with its built-in
// Leases, and our server. It reports answers that differ. Before that, it compares the OpenAPI documents of both
// servers.
//
// A sequence uses two namespaces on each server. Both servers answer a request before the next one is sent. Symbols
// replace the values that must differ between the servers: UIDs, resourceVersions, times, generated names and continue
// tokens. The symbols of UIDs and resourceVersions are numbered in the order of their appearance. The rest of both
// answers must be equal byte for byte, except for the headers and messages that normal.go and known.go name.
//
// The seed determines the requests of a sequence. A request refers to an earlier value by its position, such as "the
// last resourceVersion of l1 but one". Each server gets its own value. So a sequence can be repeated, also without some
// of its steps.
//
//	differential -builtin KUBECONFIG -server KUBECONFIG [-n 1000] [-seed 1] [-steps 24] [-parallel 16] [-shards]
//	differential -builtin KUBECONFIG -server KUBECONFIG -n 1 -seed 4711 -steps 13 -v     repeats one sequence
//
// The exit status is 1 after a difference that is not in the lists of known.go, known_1_34.go and openapi.go. A
// sequence with such a difference is repeated twice. If the difference does not occur again, the report shows it as one
// that occurred only once. Such differences fail the run only if they occur in more than 1 sequence, and in more than 1
// of 200 sequences.
//
// At the end of the run, also of a failed or interrupted run, the command deletes the Leases and the namespaces.
//
// No other client may change the Leases of these namespaces. So kube-controller-manager must not run meanwhile: its
// garbage collector would delete Leases.
package main

import (
	"context"
	"errors"
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
	seed := flag.Int64("seed", 1, "seed of the first sequence; the next sequences have the next numbers")
	steps := flag.Int("steps", 24, "number of requests in a sequence; a smaller number runs only the first requests of the same sequence")
	parallel := flag.Int("parallel", 16, "maximum number of sequences that run at the same time")
	shards := flag.Bool("shards", false, "send shard selectors too; both servers must have the feature gate ShardedListAndWatch on")
	limit := flag.Int("examples", 20, "maximum number of differences that the report shows in full")
	verbose := flag.Bool("v", false, "show every request and its answer")
	flag.Parse()
	if *builtin == "" || *server == "" || flag.NArg() != 0 || *count < 1 || *steps < 1 || *parallel < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := run(ctx, *builtin, *server, *seed, *count, *steps, *shards, min(*parallel, int(*count)), *limit, *verbose)
	if report != nil {
		report.print(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(2)
	}
	if report.failed() {
		os.Exit(1)
	}
}

// run compares the OpenAPI documents, and then runs the sequences on parallel workers. Each worker has two namespaces
// of its own. If only the clean-up fails, run returns the report and the error.
func run(ctx context.Context, builtin, server string, seed, count int64, steps int, shards bool, parallel, examples int, verbose bool) (_ *report, err error) {
	began := time.Now()
	both, err := connect(builtin, server)
	if err != nil {
		return nil, err
	}
	defer func() {
		// An interrupt cancels ctx, and must not prevent the clean-up.
		err = errors.Join(err, cleanUp(context.WithoutCancel(ctx), both, parallel))
	}()
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
		workers.Go(func() {
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
		})
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
