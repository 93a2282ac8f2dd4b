package suite

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	leasecontroller "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// Maximum duration of a switch. Writes may wait for up to 3 s of it.
	switchMax = 10 * time.Second
	// Interval of a kubelet's renewals.
	kubeletInterval = 10 * time.Second
	// Maximum delay of a renewal. The renewal may wait for a switch, and then for the client's next attempt.
	renewalLateMax = 6 * time.Second
	// Maximum time until a watch from before a takeover receives a renewal.
	fedMax = 25 * time.Second
	// Maximum time until a watch that is opened after a switch has the current state.
	newWatchMax = 5 * time.Second
	// Maximum time until kube-controller-manager marks a silent node as not ready: the grace period, the lag of a watch
	// from before the switch, and the time to the next check.
	notReadyMax = 75 * time.Second
	// Number of nodes that fall silent, one after the other. The other nodes stay Ready.
	silent = 2
)

// TestTakeover takes over a cluster with two kube-apiservers and rolls it back, while kubelets, candidates and other
// clients work. No node may become NotReady, no leader may lose its lock, and no lock may have two holders. The Leases
// of the set "fixed" must keep all their fields. If kube-apiserver has MutatingAdmissionPolicies, no renewal of a
// kubelet or a candidate may get 409, except because of a late write (conflicts).
//
//	E2E_TAKEOVER, E2E_ROLLBACK  commands of the takeover and of the rollback
//	E2E_SECOND                  URL of the second kube-apiserver, whose PID file is in E2E_STATE
//	E2E_CONTROLLERS             command that restarts kube-controller-manager after each switch, if necessary
//	E2E_TAKEOVER_SECONDS        seconds from the takeover to the rollback (80)
//	E2E_ROLLBACK_SECONDS        minimum seconds from the rollback to the end of the test (0)
//	E2E_CANCEL                  command that cancels or rolls back a takeover in any state
//	E2E_TAKEOVER_KILLS          N: each command is first killed at every N-th line that it prints (3); 0 kills none
//	E2E_TAKEOVER_NODES          number of nodes with kubelets (10)
//	E2E_TAKEOVER_ELECTIONS      number of elections with three candidates each (4)
//	E2E_TAKEOVER_LOCKS          number of locks for which workers compete (5)
//	E2E_TAKEOVER_LEASES         number of further Leases, which nobody renews (0)
//
// Each command is killed in a series of runs. The first run is killed after line N, and the second run after line 2 N.
// The series ends with the first run that ends before its line. A run continues the work of the killed run before it.
// In a second series, each killed takeover is cancelled.
func TestTakeover(t *testing.T) {
	if os.Getenv("E2E_TAKEOVER") == "" {
		t.Skip("tests/e2e/run runs this test after the suite")
	}
	between := time.Duration(number("E2E_TAKEOVER_SECONDS", 80)) * time.Second
	after := time.Duration(number("E2E_ROLLBACK_SECONDS", 0)) * time.Second
	space := namespace(t)
	check(t, between+after+12*time.Minute, func(ctx context.Context) error {
		scene, err := newScene(ctx, t, space, renewalLateMax)
		if err != nil {
			return err
		}
		defer scene.end()
		if err := scene.killTakeovers(ctx); err != nil {
			return err
		}
		for _, pause := range []time.Duration{time.Second, undoneAfter + time.Second} {
			if err := scene.delayed(ctx, pause); err != nil {
				return err
			}
		}
		before, err := scene.fixed(ctx)
		if err != nil {
			return err
		}
		scene.settle()
		if err := scene.takeOver(ctx); err != nil {
			return err
		}
		if err := scene.compare(ctx, before); err != nil {
			return err
		}
		if err := scene.afterTakeover(ctx, before); err != nil {
			return err
		}
		if err := command(ctx, os.Getenv("E2E_CONTROLLERS")); err != nil {
			return err
		}
		silenced := time.Now()
		if err := scene.noticed(ctx, 0, notReadyMax); err != nil {
			return err
		}
		time.Sleep(time.Until(silenced.Add(between)))
		last, err := scene.fixed(ctx)
		if err != nil {
			return err
		}
		if err := scene.rollBack(ctx); err != nil {
			return err
		}
		rolledBack := time.Now()
		if err := scene.compare(ctx, last); err != nil {
			return err
		}
		if err := scene.afterRollback(ctx, last); err != nil {
			return err
		}
		if err := eventually(ctx, 60*time.Second, scene.informersAgree); err != nil {
			return err
		}
		if err := command(ctx, os.Getenv("E2E_CONTROLLERS")); err != nil {
			return err
		}
		if err := scene.noticed(ctx, 1, notReadyMax); err != nil {
			return err
		}
		time.Sleep(time.Until(rolledBack.Add(after)))
		if err := scene.noConflicts(); err != nil {
			return err
		}
		return scene.outcome()
	})
}

// scene is a cluster with kubelets, candidates and other clients at work.
type scene struct {
	t       *testing.T
	space   string
	configs []*rest.Config
	leases  coordinationclient.LeaseInterface
	// Interval of the lines at which commands are killed. 0 kills no command.
	kills int
	// Maximum delay of a renewal.
	lateMax time.Duration
	nodes   []string
	// Owner of the Leases that fixture returns.
	owner   metav1.OwnerReference
	leaders [][]*candidate
	churn   *churn
	// Namespace and number of the further Leases (E2E_TAKEOVER_LEASES).
	manySpace string
	many      int
	beats     *renewals
	// Updates of kubelets and candidates that got 409.
	conflicts conflicts
	old       watch.Interface
	// Informers from before the takeover, and from after each switch.
	informers []informersOf
	// Kubelet of each node. The test ends a kubelet to silence its node.
	kubelets []kubelet
	// Whether a failed read of a node is expected.
	isUnreadable atomic.Bool

	running sync.WaitGroup
	// Context that ends with the scene.
	alive  context.Context
	stop   context.CancelFunc
	mutex  sync.Mutex
	errors []error
}

// kubelet is the context of a kubelet, and the function that ends this kubelet.
type kubelet struct {
	alive context.Context
	stop  context.CancelFunc
}

// number returns the number in an environment variable, or a default.
func number(variable string, otherwise int) int {
	if set, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return set
	}
	return otherwise
}

func newScene(ctx context.Context, t *testing.T, space string, lateMax time.Duration) (*scene, error) {
	second := user("admin")
	second.Host = os.Getenv("E2E_SECOND")
	s := &scene{t: t, space: space, kills: number("E2E_TAKEOVER_KILLS", 3), lateMax: lateMax}
	s.configs = []*rest.Config{speaking(user("admin"), contentTypes["json"]), speaking(second, contentTypes["protobuf"])}
	s.leases = clientset(s.configs[0]).CoordinationV1().Leases(space)
	s.alive, s.stop = context.WithCancel(ctx)
	ctx = s.alive
	for _, begin := range []func(context.Context) error{s.beginMany, s.beginNodes, s.beginElections, s.beginChurn, s.beginFixed} {
		if err := begin(ctx); err != nil {
			s.end()
			return nil, err
		}
	}
	// In this time, every kubelet renews.
	time.Sleep(kubeletInterval + 2*time.Second)
	return s, nil
}

func (s *scene) end() {
	s.stop()
	s.running.Wait()
	for _, node := range s.nodes {
		_ = admin().CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{})
	}
	s.endMany()
}

func (s *scene) fail(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.errors = append(s.errors, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
}

// beginNodes starts nodes with kubelets, half of them at each kube-apiserver. A check in the background fails if a node
// with a running kubelet is not Ready.
func (s *scene) beginNodes(ctx context.Context) error {
	nodes := admin().CoreV1().Nodes()
	count := number("E2E_TAKEOVER_NODES", 10)
	for number := range count {
		name := fmt.Sprintf("node-%s-%d", s.space, number)
		object, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, name)
		if err := report(ctx, object); err != nil {
			return err
		}
		renewer := leasecontroller.NewController(clock.RealClock{}, clientset(s.conflicts.of(s.configs[number%2])), name, 40, nil, kubeletInterval,
			name, corev1.NamespaceNodeLease, nil)
		alive, cancel := context.WithCancel(ctx)
		s.kubelets = append(s.kubelets, kubelet{alive, cancel})
		s.running.Go(func() { defer cancel(); renewer.Run(alive) })
	}
	s.beats = newRenewals()
	s.running.Go(func() { s.beats.follow(ctx, s.heartbeats()) })
	s.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			for number, node := range s.nodes {
				object, err := nodes.Get(ctx, node, metav1.GetOptions{})
				if err == nil && readiness(object) != corev1.ConditionTrue {
					err = fmt.Errorf("Ready is not True: %v", object.Status.Conditions)
				} else if s.isUnreadable.Load() {
					continue
				}
				if err != nil && s.kubelets[number].alive.Err() == nil {
					s.fail(fmt.Errorf("%s: %w", node, err))
				}
			}
		}
	})
	return nil
}

// noticed ends the kubelet of a node, and waits until kube-controller-manager marks the node as not ready.
func (s *scene) noticed(ctx context.Context, number int, limit time.Duration) error {
	silenced := time.Now()
	s.kubelets[number].stop()
	if err := eventually(ctx, limit, ready(admin().CoreV1().Nodes().Get, s.nodes[number], corev1.ConditionUnknown)); err != nil {
		return fmt.Errorf("node of the silent kubelet %d: %w", number, err)
	}
	s.t.Logf("the node of the silent kubelet %d was marked as not ready after %s", number, time.Since(silenced).Round(time.Second))
	return nil
}

// heartbeats returns a client for the Leases of nodes.
func (s *scene) heartbeats() coordinationclient.LeaseInterface {
	return clientset(s.configs[0]).CoordinationV1().Leases(corev1.NamespaceNodeLease)
}

// beginElections starts elections with three candidates each. A check in the background fails if the first leader stops
// leading, or another candidate leads.
func (s *scene) beginElections(ctx context.Context) error {
	count := number("E2E_TAKEOVER_ELECTIONS", 4)
	for number := range count {
		var candidates []*candidate
		for rank := range 3 {
			c, err := standFor(ctx, s.conflicts.of(s.configs[(number+rank)%2]), s.space, fmt.Sprint("election-", number), fmt.Sprint("candidate-", rank), usual, false)
			if err != nil {
				return err
			}
			candidates = append(candidates, c)
			if err := eventually(ctx, 20*time.Second, leads(candidates[0], true)); err != nil {
				return err
			}
		}
		s.leaders = append(s.leaders, candidates)
		s.running.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				for rank, c := range candidates {
					if c.leads.Load() != (rank == 0) && ctx.Err() == nil {
						s.fail(fmt.Errorf("election %d: candidate %d leads: %t", number, rank, rank != 0))
						return
					}
				}
			}
		})
	}
	return nil
}

func (s *scene) beginChurn(ctx context.Context) error {
	// The locks have a namespace of their own. The reason: kube-apiserver ends a watch if its namespace changes faster
	// than the watch is served.
	space := namespace(s.t)
	var servers []coordinationclient.LeaseInterface
	for _, config := range s.configs {
		servers = append(servers, clientset(config).CoordinationV1().Leases(space))
	}
	locks := number("E2E_TAKEOVER_LOCKS", 5)
	s.churn = newChurn(servers, max(1, locks/5))
	for lock := range locks {
		for worker := range 3 {
			s.running.Go(func() { s.churn.run(ctx, fmt.Sprint("lock-", lock), fmt.Sprint("worker-", worker)) })
		}
	}
	return nil
}

// beginFixed creates the Leases of the set "fixed", which only the test itself changes. It also starts a watch and
// informers of them.
func (s *scene) beginFixed(ctx context.Context) error {
	owner, err := admin().CoreV1().Namespaces().Get(ctx, s.space, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.owner = metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: s.space, UID: owner.UID, BlockOwnerDeletion: ptr.To(false)}
	for number := range 5 {
		fixed := s.fixture("fixed", number)
		fixed.Finalizers = []string{"example.com/hold"}
		if _, err := s.leases.Create(ctx, fixed, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	s.old, err = s.leases.Watch(ctx, metav1.ListOptions{LabelSelector: "fixed"})
	if err != nil {
		return err
	}
	return s.beginInformers()
}

// fixture returns a Lease with labels, annotations and an owner. One label is the name of its set.
func (s *scene) fixture(set string, number int) *coordinationv1.Lease {
	built := lease(fmt.Sprint(set, "-", number), "one")
	built.Labels = map[string]string{set: "", "number": fmt.Sprint(number)}
	built.Annotations = map[string]string{"example.com/text": "ünïcode <&>"}
	built.OwnerReferences = []metav1.OwnerReference{s.owner}
	return built
}

// beginInformers starts an informer in this process, and those of ../informers.
func (s *scene) beginInformers() error {
	informer := leaseInformer(clientset(s.configs[len(s.informers)%2]), s.space)
	if _, err := start(s.alive, informer); err != nil {
		return err
	}
	foreign, err := s.beginForeignInformers()
	s.informers = append(s.informers, informersOf{informer, foreign})
	return err
}

// fixed returns the Leases of the set "fixed".
func (s *scene) fixed(ctx context.Context) (map[string]coordinationv1.Lease, error) {
	found, err := s.set(ctx, "fixed")
	if err == nil && len(found) != 5 {
		err = fmt.Errorf("%d of 5 Leases exist", len(found))
	}
	return found, err
}

// set returns the Leases of a set, by name.
func (s *scene) set(ctx context.Context, name string) (map[string]coordinationv1.Lease, error) {
	list, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: name})
	if err != nil {
		return nil, err
	}
	found := map[string]coordinationv1.Lease{}
	for _, item := range list.Items {
		found[item.Name] = item
	}
	return found, nil
}

// compare compares the Leases of the set "fixed" with an earlier state, without their resourceVersions.
func (s *scene) compare(ctx context.Context, before map[string]coordinationv1.Lease) error {
	return s.compareSet(ctx, "fixed", before, func(*coordinationv1.Lease) {})
}

// compareSet compares the Leases of a set with an earlier state, without their resourceVersions. `forget` clears
// further fields that may differ.
func (s *scene) compareSet(ctx context.Context, name string, before map[string]coordinationv1.Lease, forget func(*coordinationv1.Lease)) error {
	after, err := s.set(ctx, name)
	if err != nil {
		return err
	}
	if len(after) != len(before) {
		return fmt.Errorf("%d Leases have the label %s, but %d had it", len(after), name, len(before))
	}
	for name, was := range before {
		is := after[name]
		was.ResourceVersion, is.ResourceVersion = "", ""
		forget(&was)
		forget(&is)
		if !reflect.DeepEqual(was, is) {
			return fmt.Errorf("%s was %v, but is %v", name, was, is)
		}
	}
	return nil
}

// killTakeovers kills a series of takeovers, each after a later line of its output. Then it completes a takeover and
// rolls it back. Then it kills a second series, and cancels each takeover. The Leases must stay the same.
func (s *scene) killTakeovers(ctx context.Context) error {
	before, err := s.fixed(ctx)
	if err != nil {
		return err
	}
	if err := s.kill(ctx, "E2E_TAKEOVER"); err != nil {
		return err
	}
	for _, variable := range []string{"E2E_TAKEOVER", "E2E_ROLLBACK"} {
		if err := s.run(ctx, variable); err != nil {
			return err
		}
	}
	if err := s.compare(ctx, before); err != nil {
		return err
	}
	if err := s.cancel(ctx); err != nil {
		return err
	}
	if err := s.compare(ctx, before); err != nil {
		return err
	}
	return s.checkCanary(ctx)
}

// run runs a command of the switch: as a dry run, then until it succeeds, and then once more.
func (s *scene) run(ctx context.Context, variable string) error {
	if err := command(ctx, os.Getenv(variable)+" --dry-run"); err != nil {
		return err
	}
	for range 2 {
		printed, took, err := s.succeed(ctx, variable)
		if err != nil {
			return err
		}
		s.t.Logf("%s took %s:\n%s", variable, took.Round(time.Millisecond), printed)
		if took > switchMax {
			return fmt.Errorf("%s took %s", variable, took)
		}
	}
	return nil
}

func (s *scene) takeOver(ctx context.Context) error {
	if err := s.run(ctx, "E2E_TAKEOVER"); err != nil {
		return err
	}
	return s.newWatchesAgree(ctx)
}

// newWatchesAgree starts informers after a switch, and waits until they have the current state.
func (s *scene) newWatchesAgree(ctx context.Context) error {
	if err := s.beginInformers(); err != nil {
		return err
	}
	return eventually(ctx, newWatchMax, func(ctx context.Context) error { return s.agree(ctx, s.informers[len(s.informers)-1:]) })
}

func (s *scene) rollBack(ctx context.Context) error {
	if err := s.kill(ctx, "E2E_ROLLBACK"); err != nil {
		return err
	}
	// A run may be killed while nobody can write. Then a renewal also waits for the next run.
	if s.kills > 0 {
		s.lateMax += frozenMax
	}
	if err := s.run(ctx, "E2E_ROLLBACK"); err != nil {
		return err
	}
	if err := s.newWatchesAgree(ctx); err != nil {
		return err
	}
	return s.checkCanary(ctx)
}

// afterTakeover renews a Lease with a resourceVersion from before the takeover, and changes the holder of another
// Lease. The watch and the informers from before the takeover must receive both changes.
func (s *scene) afterTakeover(ctx context.Context, before map[string]coordinationv1.Lease) error {
	renewed, err := s.renewFixed(ctx, before)
	if err != nil {
		return err
	}
	if err := s.hears("fixed-0", fedMax, func(heard *coordinationv1.Lease) bool {
		return heard.Spec.RenewTime.Equal(renewed)
	}); err != nil {
		return err
	}
	if err := s.acquireFixed(ctx); err != nil {
		return err
	}
	if err := s.hears("fixed-1", 5*time.Second, func(heard *coordinationv1.Lease) bool {
		return *heard.Spec.HolderIdentity == "two"
	}); err != nil {
		return err
	}
	return eventually(ctx, fedMax, s.informersAgree)
}

// renewFixed renews fixed-0 with its resourceVersion from before a switch, and returns the new renewTime.
func (s *scene) renewFixed(ctx context.Context, before map[string]coordinationv1.Lease) (*metav1.MicroTime, error) {
	first := before["fixed-0"]
	first.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)))
	if _, err := s.leases.Update(ctx, &first, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("the first renewal, with a resourceVersion from before the switch: %w", err)
	}
	return first.Spec.RenewTime, nil
}

// acquireFixed gives fixed-1 another holder.
func (s *scene) acquireFixed(ctx context.Context) error {
	held, err := s.leases.Get(ctx, "fixed-1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	held.Spec.HolderIdentity = ptr.To("two")
	_, err = s.leases.Update(ctx, held, metav1.UpdateOptions{})
	return err
}

// hears waits until the watch from before the takeover shows a wanted state of a Lease.
func (s *scene) hears(name string, limit time.Duration, wanted func(*coordinationv1.Lease) bool) error {
	late := time.After(limit)
	for {
		select {
		case event, more := <-s.old.ResultChan():
			if heard, is := event.Object.(*coordinationv1.Lease); is && heard.Name == name && wanted(heard) {
				return nil
			} else if !more {
				return fmt.Errorf("the watch from before the takeover has ended")
			}
		case <-late:
			return fmt.Errorf("the watch from before the takeover has not received %s in %s", name, limit)
		}
	}
}

// informersAgree compares all informers with a list.
func (s *scene) informersAgree(ctx context.Context) error { return s.agree(ctx, s.informers) }

// agree compares the Leases of the set "fixed" in informers with a list. Their resourceVersions may differ in informers
// from before a switch.
func (s *scene) agree(ctx context.Context, informers []informersOf) error {
	listed, err := s.fixed(ctx)
	if err != nil {
		return err
	}
	wanted := shownOf(listed)
	for start, some := range informers {
		for name, compare := range some.each() {
			if err := compare(wanted); err != nil {
				return fmt.Errorf("informers of start %d, %s: %w", start, name, err)
			}
		}
	}
	return nil
}

// complaint returns the first failure of the checks in the background since the last call.
func (s *scene) complaint() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	complaints := s.errors
	s.errors = nil
	if len(complaints) == 0 {
		return nil
	}
	return fmt.Errorf("%d failures, the first: %w", len(complaints), complaints[0])
}

// outcome returns the first violation of a lock, failure of a check in the background, or late renewal. A renewal is
// late if too much time has passed since the renewal before it. The time since the last renewal counts too.
func (s *scene) outcome() error {
	summary, err := s.churn.outcome()
	if err != nil {
		return err
	}
	s.t.Log(summary)
	if err := s.complaint(); err != nil {
		return err
	}
	now := time.Now()
	// The last list of `follow` may not have the last renewals, so this call lists once more.
	if err := s.beats.look(s.alive, s.heartbeats()); err != nil {
		return err
	}
	var longest time.Duration
	for _, node := range s.nodes[silent:] {
		gap, err := s.beats.gapOf(node, now)
		if err != nil {
			return err
		}
		longest = max(longest, gap)
	}
	s.t.Logf("renewals of nodes were at most %s late", (longest - kubeletInterval).Round(time.Millisecond))
	// client-go adds up to 4 % to the interval, so the test allows 5 %.
	if longest > kubeletInterval+kubeletInterval/20+s.lateMax {
		return fmt.Errorf("a node was not renewed for %s", longest)
	}
	return nil
}
