package suite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	controllerManager = "kube-controller-manager"
	// Maximum time until a kube-controller-manager has started, created its LeaseCandidate, and was elected.
	electedMax = 40 * time.Second
)

// managers are kube-controller-managers. With the feature gate CoordinatedLeaderElection, kube-apiserver elects the
// leader among them.
//
//	E2E_COORDINATED     file with the command line of kube-controller-manager, split at NUL
//	E2E_LEASE_SECONDS   duration of their Lease in seconds (8); Kubernetes' default is 15
type managers struct {
	t     *testing.T
	pace  pace
	mutex sync.Mutex
	all   []*manager
	two   atomic.Pointer[string]
}

// manager is one process of kube-controller-manager.
type manager struct {
	process  *os.Process
	identity string
	metrics  rest.Interface
	ended    chan struct{}
}

// onlyCoordinated skips a test outside the round `coordinated` of tests/e2e/run.
func onlyCoordinated(t *testing.T) {
	if os.Getenv("E2E_COORDINATED") == "" {
		t.Skip("`tests/e2e/run coordinated` runs this test")
	}
}

func newManagers(ctx context.Context, t *testing.T) *managers {
	onlyCoordinated(t)
	seconds := time.Duration(number("E2E_LEASE_SECONDS", 8))
	// The renew deadline and the retry period have the same proportions to the duration as by default.
	e := &managers{t: t, pace: pace{seconds * time.Second, seconds * 2 / 3 * time.Second, max(1, seconds/7) * time.Second}}
	watching, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { e.look(watching) })
	t.Cleanup(func() {
		stop()
		done.Wait()
		for _, m := range e.alive() {
			m.kill()
		}
		// The next election must not wait for candidates that no longer run.
		ctx := context.Background()
		candidates := admin().CoordinationV1beta1().LeaseCandidates(metav1.NamespaceSystem)
		_ = candidates.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		_ = admin().CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, controllerManager, metav1.DeleteOptions{})
	})
	return e
}

// start starts a manager and waits until its LeaseCandidate exists. Then it waits for the next second, so that any
// later candidate is younger. TestCoordinatedTie shows the reason.
func (e *managers) start(ctx context.Context, further ...string) (*manager, error) {
	known, err := candidates(ctx)
	if err != nil {
		return nil, err
	}
	usual, err := os.ReadFile(os.Getenv("E2E_COORDINATED"))
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// If a flag occurs twice, its last value counts.
	words := append(strings.Split(strings.TrimSuffix(string(usual), "\x00"), "\x00"),
		"--feature-gates=CoordinatedLeaderElection=true", "--secure-port="+port,
		"--leader-elect-lease-duration="+e.pace.duration.String(),
		"--leader-elect-renew-deadline="+e.pace.deadline.String(),
		"--leader-elect-retry-period="+e.pace.retry.String())
	run := exec.Command(words[0], append(words[1:], further...)...)
	e.mutex.Lock()
	log := filepath.Join(os.Getenv("E2E_STATE"), "log", fmt.Sprintf("coordinated-%s-%d.log", e.t.Name(), len(e.all)))
	e.mutex.Unlock()
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	run.Stdout, run.Stderr = file, file
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := run.Start(); err != nil {
		return nil, err
	}
	config := speaking(user("admin"), contentTypes["json"])
	config.Host = "https://127.0.0.1:" + port
	config.Timeout = 2 * time.Second
	m := &manager{process: run.Process, metrics: clientset(config).CoordinationV1().RESTClient(), ended: make(chan struct{})}
	go func() { defer close(m.ended); _ = run.Wait() }()
	e.mutex.Lock()
	e.all = append(e.all, m)
	e.mutex.Unlock()
	err = eventually(ctx, electedMax, func(ctx context.Context) error {
		if m.over() == nil {
			return fmt.Errorf("the process has ended: %s", log)
		}
		now, err := candidates(ctx)
		for name := range now {
			if !known[name] {
				m.identity = name
				return nil
			}
		}
		return errors.Join(err, errors.New("the manager has no LeaseCandidate"))
	})
	time.Sleep(untilNextSecond())
	return m, err
}

func untilNextSecond() time.Duration {
	return time.Until(time.Now().Truncate(time.Second).Add(time.Second))
}

func (m *manager) kill() {
	_ = m.process.Kill()
	<-m.ended
}

// stop sends SIGTERM and waits for the end of the process. After releasedMax it sends SIGKILL, and returns an error.
func (m *manager) stop() error {
	_ = m.process.Signal(syscall.SIGTERM)
	select {
	case <-m.ended:
		return nil
	case <-time.After(releasedMax):
		m.kill()
		return fmt.Errorf("%s still ran %s after SIGTERM, and was killed", m.identity, releasedMax)
	}
}

// over returns an error while the process runs.
func (m *manager) over() error {
	select {
	case <-m.ended:
		return nil
	default:
		return fmt.Errorf("%s still runs", m.identity)
	}
}

// leads returns whether the process leads, according to its metrics.
func (m *manager) leads(ctx context.Context) bool {
	text, err := m.metrics.Get().AbsPath("/metrics").DoRaw(ctx)
	return err == nil && strings.Contains(string(text), `leader_election_master_status{name="`+controllerManager+`"} 1`)
}

func (e *managers) alive() (alive []*manager) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for _, m := range e.all {
		if m.over() != nil {
			alive = append(alive, m)
		}
	}
	return alive
}

// leaders returns the managers that lead, according to their metrics.
func (e *managers) leaders(ctx context.Context) (leaders []*manager) {
	for _, m := range e.alive() {
		if m.leads(ctx) {
			leaders = append(leaders, m)
		}
	}
	return leaders
}

// look checks four times a second that no two managers lead, and records a violation.
func (e *managers) look(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(250 * time.Millisecond) {
		// The second query rules out that the first manager stopped leading while the other one was queried.
		if len(e.leaders(ctx)) > 1 && len(e.leaders(ctx)) > 1 {
			e.two.Store(ptr.To(time.Now().Format(time.TimeOnly)))
		}
	}
}

func (e *managers) twoLed() error {
	if at := e.two.Load(); at != nil {
		return fmt.Errorf("two managers led at %s", *at)
	}
	return nil
}

// says compares holder and preferred holder of the Lease with the expected ones. An empty name means none.
func (e *managers) says(ctx context.Context, holder, preferred string) error {
	held, err := theLease(ctx, controllerManager)
	if err != nil {
		return err
	}
	spec := held.Spec
	if ptr.Deref(spec.HolderIdentity, "") != holder || ptr.Deref(spec.PreferredHolder, "") != preferred ||
		ptr.Deref(spec.Strategy, "") != coordinationv1.OldestEmulationVersion {
		return fmt.Errorf("want holder %q, preferred %q, got %v", holder, preferred, &spec)
	}
	return nil
}

// awaitLeader waits until a manager leads, and checks that it is the holder of the Lease.
func (e *managers) awaitLeader(ctx context.Context, m *manager, limit time.Duration) error {
	if err := eventually(ctx, limit, func(ctx context.Context) error {
		if !m.leads(ctx) {
			return fmt.Errorf("%s does not lead", m.identity)
		}
		return nil
	}); err != nil {
		return err
	}
	return e.says(ctx, m.identity, "")
}

// leadsOn checks that a manager continues to lead for longer than its Lease lasts. Meanwhile the Lease must have no
// preferred holder.
func (e *managers) leadsOn(ctx context.Context, m *manager) error {
	for until := time.Now().Add(e.pace.duration + 5*time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		if err := e.says(ctx, m.identity, ""); err != nil {
			return err
		}
	}
	if leaders := e.leaders(ctx); len(leaders) != 1 || leaders[0] != m {
		return fmt.Errorf("%s does not lead alone: %d lead", m.identity, len(leaders))
	}
	return nil
}

// killed kills the leader and waits until the next one leads. The Lease must expire first. Then up to 5 s pass until
// kube-apiserver checks the Lease, and up to 5 s until the candidates answer. The next leader needs up to 2 s to read
// its Lease.
func (e *managers) killed(ctx context.Context, leader, next *manager) error {
	leader.kill()
	killed := time.Now()
	if err := e.awaitLeader(ctx, next, e.pace.duration+12*time.Second); err != nil {
		return err
	}
	e.t.Logf("kill -9 of the leader: the next one led after %s", time.Since(killed).Round(100*time.Millisecond))
	return nil
}

func theLease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return admin().CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
}

// candidates returns the names of the LeaseCandidates in kube-system.
func candidates(ctx context.Context) (map[string]bool, error) {
	list, err := admin().CoordinationV1beta1().LeaseCandidates(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, candidate := range list.Items {
		names[candidate.Name] = true
	}
	return names, nil
}

// olderVersion returns the minor version before the one of the control plane, such as 1.36.
func olderVersion() (string, error) {
	version, err := admin().Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	minor, err := strconv.Atoi(version.Minor)
	return fmt.Sprintf("%s.%d", version.Major, minor-1), err
}

// portsOffered is the number of ports that freePort has tried.
var portsOffered atomic.Int32

// freePort returns a port on 127.0.0.1 on which no process listens. The port is below Linux's range for outgoing
// connections. So no connection takes the port before a program listens on it.
func freePort() (string, error) {
	for {
		port := 20000 + portsOffered.Add(1)
		if port > 21000 {
			return "", errors.New("no port from 20001 to 21000 is free")
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return strconv.Itoa(int(port)), listener.Close()
		}
	}
}

// holderOf returns the holder of a Lease in kube-system. It returns an empty string if there is no holder or no Lease.
func holderOf(ctx context.Context, name string) (string, error) {
	held, err := theLease(ctx, name)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return ptr.Deref(held.Spec.HolderIdentity, ""), nil
}
