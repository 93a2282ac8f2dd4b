package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	leasecontroller "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

const (
	kubeletsEach = 10
	// Timeout of a renewal in kubelet.
	kubeletTimeout = 10 * time.Second
	// Maximum delay of a renewal through a kube-apiserver whose node works.
	otherNodeLate = 2 * time.Second
	// Maximum delay of a renewal during a switch, which may stop writes for 3 s.
	switchedLate = 5 * time.Second
	// Maximum delay of a renewal after the death of a replica. When the EndpointSlices change, the kube-apiserver on
	// the same node probes the dead replica once more, since kube-proxy follows up to a second later. After this failed
	// probe, the kube-apiserver briefly marks the APIService as unavailable, for all kube-apiservers. A kubelet whose
	// renewal fails meanwhile tries again after up to 3 s.
	otherReplicaLate = 4 * time.Second
	nodeAway         = 60 * time.Second
	// Maximum time from the return of a node until all kubelets have renewed through it.
	nodeBack = 60 * time.Second
)

// TestNodes disturbs one of three nodes, each with a control plane and a replica. The etcd member of the disturbed node
// leads at first. The node is cut off, killed and started again. Its replica dies, hangs and is restarted. Renewals
// through the other nodes must not be late, and no leader may lose its lock. The log has the delays of renewals through
// the disturbed node.
//
//	E2E_NODES                   script ../nodes
//	E2E_SERVERS, E2E_ETCDS      URLs of the nodes' kube-apiservers and of their etcd members
//	E2E_TAKEOVER, E2E_ROLLBACK  commands of the takeover and of the rollback
func TestNodes(t *testing.T) {
	if os.Getenv("E2E_NODES") == "" {
		t.Skip("tests/e2e/nodes runs this test")
	}
	check(t, 15*time.Minute, func(ctx context.Context) error {
		n, err := newControlPlane(ctx, t)
		if err != nil {
			return err
		}
		defer n.end()
		t.Logf("the etcd of node %d leads: this node is disturbed", n.lost+1)
		nodes, lost := os.Getenv("E2E_NODES"), fmt.Sprint(n.lost+1)
		// After the death of the replica on its node, a kube-apiserver uses the replica of another node. Only a restart
		// makes kube-apiserver use the replica of its own node again.
		restarted := nodeStep{"a kill of kube-apiserver", nodes + " signal kube-apiserver-" + lost + " KILL", time.Second, nodes + " start kube-apiserver-" + lost, otherNodeLate, false}
		for _, step := range []nodeStep{
			{what: "the takeover", begin: os.Getenv("E2E_TAKEOVER"), lateMax: switchedLate, isHarmless: true},
			// A kubelet that is stopped (SIGSTOP) neither restarts the container nor kills it, as on a node without
			// free memory.
			{"a replica that dies", nodes + " signal kubelet-" + lost + " STOP replica-" + lost + " KILL", 30 * time.Second, nodes + " signal kubelet-" + lost + " CONT", otherReplicaLate, false},
			restarted,
			{"a replica that hangs", nodes + " signal kubelet-" + lost + " STOP replica-" + lost + " STOP", nodeAway, nodes + " signal replica-" + lost + " CONT kubelet-" + lost + " CONT", otherNodeLate, false},
			restarted,
			// After a restart of its kube-apiserver, a kube-proxy needs up to 15 s to follow EndpointSlices again.
			{what: "a pause", begin: "sleep 15", lateMax: switchedLate, isHarmless: true},
			{"a restart of the replica with SIGTERM", nodes + " signal replica-" + lost + " TERM", 20 * time.Second, nodes + " start replica-" + lost, otherNodeLate, true},
			{"a loss of all packets", nodes + " cut " + lost, nodeAway, nodes + " mend " + lost, otherNodeLate, false},
			{"a kill of all processes", nodes + " kill " + lost, 20 * time.Second, nodes + " start " + lost, otherNodeLate, false},
			{what: "the rollback", begin: os.Getenv("E2E_ROLLBACK"), lateMax: switchedLate, isHarmless: true},
		} {
			if err := n.take(ctx, step); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
		}
		return nil
	})
}

// nodeStep is a disturbance of one node for some time, or a takeover or rollback.
type nodeStep struct {
	what  string
	begin string
	lasts time.Duration
	// Command that ends the disturbance, or an empty string.
	end string
	// Maximum delay of a renewal through another node.
	lateMax time.Duration
	// Whether lateMax also applies to renewals through the disturbed node.
	isHarmless bool
}

// nodeSet is a control plane of several nodes, with kubelets and candidates as its clients.
type nodeSet struct {
	t       *testing.T
	space   string
	configs []*rest.Config
	// Index of the disturbed node.
	lost     int
	leaders  [][]*candidate
	stop     context.CancelFunc
	running  sync.WaitGroup
	failures chan error
}

func newControlPlane(ctx context.Context, t *testing.T) (*nodeSet, error) {
	n := &nodeSet{t: t, space: namespace(t), failures: make(chan error, 1)}
	for _, url := range strings.Fields(os.Getenv("E2E_SERVERS")) {
		config := user("admin")
		config.Host, config.Timeout = url, kubeletTimeout
		n.configs = append(n.configs, config)
	}
	var err error
	if n.lost, err = etcdLeader(ctx); err != nil {
		return nil, err
	}
	ctx, n.stop = context.WithCancel(ctx)
	for server, config := range n.configs {
		for number := range kubeletsEach {
			name := fmt.Sprintf("node-%d-%d", server, number)
			kubelet := leasecontroller.NewController(clock.RealClock{}, clientset(config), name, 40, nil, renewInterval, name, n.space, nil)
			n.running.Go(func() { kubelet.Run(ctx) })
		}
	}
	for election := range 2 * elections {
		var candidates []*candidate
		for rank := range n.configs {
			// The first candidate, which leads, never uses the kube-apiserver of the disturbed node.
			server := (n.lost + 1 + (election+rank)%2) % len(n.configs)
			if rank == len(n.configs)-1 {
				server = n.lost
			}
			c, err := standFor(ctx, n.configs[server], n.space, fmt.Sprint("election-", election), fmt.Sprint("candidate-", rank), usual, false)
			if err != nil {
				n.end()
				return nil, err
			}
			candidates = append(candidates, c)
			if err := eventually(ctx, 20*time.Second, leads(candidates[0], true)); err != nil {
				n.end()
				return nil, err
			}
		}
		n.leaders = append(n.leaders, candidates)
	}
	n.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if err := n.sameLeaders(); err != nil && ctx.Err() == nil {
				n.failures <- err
				return
			}
		}
	})
	return n, nil
}

func (n *nodeSet) end() {
	n.stop()
	n.running.Wait()
}

func (n *nodeSet) sameLeaders() error {
	for election, candidates := range n.leaders {
		for rank, c := range candidates {
			if c.leads.Load() != (rank == 0) {
				return fmt.Errorf("%s: election %d: candidate %d leads: %t", time.Now().Format(time.TimeOnly), election, rank, rank != 0)
			}
		}
	}
	return nil
}

// take runs a step, and checks the delays of renewals during the step.
func (n *nodeSet) take(ctx context.Context, step nodeStep) error {
	other := n.configs[(n.lost+1)%len(n.configs)]
	seen, stop := followRenewals(ctx, clientset(other).CoordinationV1().Leases(n.space))
	defer stop()
	time.Sleep(2 * renewInterval)
	if err := command(ctx, step.begin); err != nil {
		return err
	}
	select {
	case <-time.After(step.lasts):
	case err := <-n.failures:
		return err
	}
	back := time.Now()
	if step.end != "" {
		if err := command(ctx, step.end); err != nil {
			return err
		}
	}
	if err := eventually(ctx, nodeBack, func(context.Context) error {
		if count := seen.countAfter(n.prefix(n.lost), back); count < kubeletsEach {
			return fmt.Errorf("%d of %d kubelets have renewed through node %d", count, kubeletsEach, n.lost+1)
		}
		return nil
	}); err != nil {
		return err
	}
	allBack := time.Since(back)
	time.Sleep(2 * renewInterval)
	select {
	case err := <-n.failures:
		return err
	default:
	}
	var late []string
	for server := range n.configs {
		if count := seen.countAfter(n.prefix(server), time.Time{}); count != kubeletsEach {
			return fmt.Errorf("renewals of %d kubelets instead of %d were seen through node %d", count, kubeletsEach, server+1)
		}
		by := seen.late(n.prefix(server), time.Now())
		late = append(late, by.Round(time.Millisecond).String())
		if by > step.lateMax && (server != n.lost || step.isHarmless) {
			return fmt.Errorf("a renewal through node %d was %s late", server+1, by)
		}
	}
	n.t.Logf("%s for %s, at node %d: renewals through nodes 1 to %d were at most %s late; all kubelets of node %d had renewed %s after the end of the step",
		step.what, step.lasts, n.lost+1, len(n.configs), strings.Join(late, ", "), n.lost+1, allBack.Round(100*time.Millisecond))
	return nil
}

// prefix returns the prefix of the names of the kubelets that renew through a node.
func (n *nodeSet) prefix(server int) string { return fmt.Sprintf("node-%d-", server) }

// countAfter returns how many nodes with this prefix have renewed after `since`.
func (r *renewals) countAfter(prefix string, since time.Time) (count int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for node, last := range r.last {
		if strings.HasPrefix(node, prefix) && last.After(since) {
			count++
		}
	}
	return count
}

// late returns the longest delay of a renewal of the nodes with this prefix. client-go lengthens the interval of
// renewals by up to 4 %.
func (r *renewals) late(prefix string, now time.Time) (longest time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for node, last := range r.last {
		if strings.HasPrefix(node, prefix) {
			longest = max(longest, r.gap[node], now.Sub(last))
		}
	}
	return longest - renewInterval - renewInterval/25
}

// etcdLeader returns the index of the etcd member that leads.
func etcdLeader(ctx context.Context) (int, error) {
	for number, url := range strings.Fields(os.Getenv("E2E_ETCDS")) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return 0, err
		}
		if strings.Contains(string(text), "\netcd_server_is_leader 1\n") {
			return number, nil
		}
	}
	return 0, fmt.Errorf("no etcd member leads")
}
