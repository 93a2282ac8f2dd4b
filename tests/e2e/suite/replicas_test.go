package suite

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	leasecontroller "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

const (
	kubelets      = 100
	elections     = 5
	renewInterval = 2 * time.Second
	// Maximum delay of a renewal.
	latest = 5 * time.Second
	// Time from the kill of one replica to the kill of the next one.
	betweenKills = 10 * time.Second
	// Number of candidates in each election.
	candidatesEach = 2
)

// TestReplicas kills and restarts replicas one after the other, behind two kube-apiservers. No renewal of a node may be
// late, and no leader may lose its lock.
//
//	E2E_SECOND    URL of the second kube-apiserver
//	E2E_REPLICAS  commands that kill and start a replica, separated by commas
//	E2E_KILLS     number of kills of replicas
func TestReplicas(t *testing.T) {
	if os.Getenv("E2E_REPLICAS") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	kills, err := strconv.Atoi(os.Getenv("E2E_KILLS"))
	if err != nil {
		t.Fatal(err)
	}
	second := user("admin")
	second.Host = os.Getenv("E2E_SECOND")
	configs := []*rest.Config{user("admin"), second}
	check(t, time.Duration(kills+6)*betweenKills, func(ctx context.Context) error {
		space := namespace(t)
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for number := range kubelets {
			name := fmt.Sprintf("node-%03d", number)
			kubelet := leasecontroller.NewController(clock.RealClock{}, clientset(configs[number%2]), name, 40, nil,
				renewInterval, name, space, nil)
			running.Go(func() { kubelet.Run(ctx) })
		}
		leaders := make([][]*candidate, elections)
		for election := range leaders {
			for number := range candidatesEach {
				name := fmt.Sprintf("election-%d", election)
				c, err := standFor(ctx, configs[(election+number)%2], space, name, fmt.Sprint(number), usual, false)
				if err != nil {
					return err
				}
				defer c.end()
				leaders[election] = append(leaders[election], c)
				if number == 0 {
					if err := eventually(ctx, 20*time.Second, leads(c, true)); err != nil {
						return err
					}
				}
			}
		}
		renewals := newRenewals()
		running.Go(func() { renewals.follow(ctx, clientset(configs[0]).CoordinationV1().Leases(space)) })
		time.Sleep(2 * renewInterval)

		commands := strings.Split(os.Getenv("E2E_REPLICAS"), ",")
		for number := range kills {
			killed := time.Now()
			if err := command(ctx, commands[number%len(commands)]); err != nil {
				return err
			}
			time.Sleep(time.Until(killed.Add(betweenKills)))
			for election, candidates := range leaders {
				if !candidates[0].leads.Load() || candidates[1].leads.Load() {
					return fmt.Errorf("kill %d: election %d has another leader, or none", number, election)
				}
			}
		}
		if seen := renewals.countAfter("node-", time.Time{}); seen != kubelets {
			return fmt.Errorf("renewals of %d kubelets instead of %d were seen", seen, kubelets)
		}
		longest, name, count := renewals.longest(time.Now())
		t.Logf("%d replicas killed, %d renewals of %d nodes, at most %s late", kills, count, kubelets,
			(longest - renewInterval).Round(time.Millisecond))
		if late := longest - renewInterval; late > latest {
			return fmt.Errorf("the renewal of %s was %s late", name, late)
		}
		return nil
	})
}

// renewals has the last renewTime of each node's Lease, and the longest time between two renewals.
type renewals struct {
	mutex sync.Mutex
	last  map[string]time.Time
	gap   map[string]time.Duration
	count int
}

func newRenewals() *renewals {
	return &renewals{last: map[string]time.Time{}, gap: map[string]time.Duration{}}
}

// followRenewals records renewals in the background. It returns the records, and a function that ends the recording.
func followRenewals(ctx context.Context, leases coordinationclient.LeaseInterface) (*renewals, func()) {
	seen := newRenewals()
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { seen.follow(ctx, leases) })
	return seen, func() { cancel(); following.Wait() }
}

// follow records the renewals until the context ends. It lists the Leases eight times in each interval of a renewal. An
// informer could miss renewals, since it waits for up to 30 s after some failed watches.
func (r *renewals) follow(ctx context.Context, leases coordinationclient.LeaseInterface) {
	for ctx.Err() == nil {
		_ = r.look(ctx, leases)
		time.Sleep(renewInterval / 8)
	}
}

// look lists the Leases once, and records the renewals.
func (r *renewals) look(ctx context.Context, leases coordinationclient.LeaseInterface) error {
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, held := range list.Items {
		r.see(&held)
	}
	return nil
}

func (r *renewals) see(held *coordinationv1.Lease) {
	if !strings.HasPrefix(held.Name, "node-") || held.Spec.RenewTime == nil {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at := held.Spec.RenewTime.Time
	last, is := r.last[held.Name]
	if is && !at.After(last) {
		// A renewTime that is not later than the last one is no new renewal. After a rollback without etcd, it may even
		// be earlier: built-in storage then has the one from before the takeover.
		return
	}
	if is {
		r.gap[held.Name] = max(r.gap[held.Name], at.Sub(last))
		r.count++
	}
	r.last[held.Name] = at
}

// gapOf returns the longest time between two renewals of a node, or from its last renewal to `now`. It returns an error
// if no renewal was seen.
func (r *renewals) gapOf(node string, now time.Time) (time.Duration, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	last, is := r.last[node]
	if !is {
		return 0, fmt.Errorf("no renewal of %s was seen", node)
	}
	return max(r.gap[node], now.Sub(last)), nil
}

// longest returns the longest time between two renewals of a node, or from its last renewal to `now`. It also returns
// the name of the node, and the number of all renewals.
func (r *renewals) longest(now time.Time) (longest time.Duration, name string, count int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for node, last := range r.last {
		if gap := max(r.gap[node], now.Sub(last)); gap > longest {
			longest, name = gap, node
		}
	}
	return longest, name, r.count
}
