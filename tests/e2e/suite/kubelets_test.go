package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	// Maximum time until kube-controller-manager marks a silent node as not ready. Its grace period is 50 s.
	markedWithin = 90 * time.Second
	// Maximum time until a container or a node works again.
	worksWithin = 2 * time.Minute
	// Number of the Deployment's Pods.
	workers = 3
	// Label of the replicas' Pods.
	replicaLabel = "app.kubernetes.io/name=coordination-apiserver"
)

// TestKubelets runs the replicas of our manifests on three nodes with kubelet, containerd and kube-scheduler. The
// cluster is taken over and rolled back. Meanwhile a replica dies twice and hangs, and the replicas are updated. A node
// is cut off, restarted and drained. All other nodes must stay Ready. Then all nodes are restarted at once, also while
// the APIService is unavailable.
//
//	E2E_NODES                   script ../nodes
//	E2E_SERVERS, E2E_ETCDS      URLs of the nodes' kube-apiservers and of their etcd members
//	E2E_REPLICAS                URLs of the replicas
//	E2E_TAKEOVER, E2E_ROLLBACK  commands of the takeover and of the rollback
//	E2E_IMAGE                   image of the Deployment's Pods
//	E2E_CALM_SECONDS            seconds for which the nodes must stay Ready after a switch (120)
func TestKubelets(t *testing.T) {
	if os.Getenv("E2E_NODES") == "" {
		t.Skip("tests/e2e/nodes runs this test")
	}
	check(t, 25*time.Minute, func(ctx context.Context) error {
		c, err := newCluster(ctx, t)
		if err != nil {
			return err
		}
		defer c.end()
		for _, step := range []struct {
			what string
			run  func(context.Context) error
			// Nodes that may become not ready.
			marked []string
		}{
			{"the Deployment", c.deploy, nil},
			{"peers before the takeover", c.peers, nil},
			{"the takeover", c.takeOver, nil},
			{"the verification", c.verify, nil},
			{"peers after the takeover", c.peers, nil},
			{"a rolling update", c.update, nil},
			{"a kill of the replica", c.signalReplica("KILL"), nil},
			{"a second kill", c.signalReplica("KILL"), nil},
			{"a hang of the replica", c.signalReplica("STOP"), nil},
			{"a loss of all packets", c.cut, []string{c.node}},
			{"a restart of the node", c.restartNode, []string{c.node}},
			{"a drain", c.drain, nil},
			{"a restart of all nodes", c.restartAll, c.nodes},
			{"peers after the restart", c.peers, nil},
			{"a restart of all nodes after the death of all replicas", c.restartWithout, c.nodes},
			{"peers after the second restart", c.peers, nil},
			{"the rollback", c.rollBack, nil},
			{"peers after the rollback", c.peers, nil},
		} {
			began := time.Now()
			if err := step.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
			for _, left := range c.leftSince(began) {
				if !slices.Contains(step.marked, left) {
					return fmt.Errorf("%s: the condition Ready of %s was not True", step.what, left)
				}
			}
			t.Logf("%s: done after %s", step.what, since(began))
		}
		return nil
	})
}

// cluster is a cluster with kubelets. The test disturbs one of its nodes: the one whose etcd member leads at first.
type cluster struct {
	t *testing.T
	// Number and name of the disturbed node.
	number string
	node   string
	// Names of all nodes.
	nodes []string
	space string
	// Client of the kube-apiserver of another node.
	client  kubernetes.Interface
	stop    context.CancelFunc
	running sync.WaitGroup
	mutex   sync.Mutex
	ready   map[string]corev1.ConditionStatus
	left    []departure
}

// departure is the time at which the condition Ready of a node stopped being True.
type departure struct {
	node string
	at   time.Time
}

func newCluster(ctx context.Context, t *testing.T) (*cluster, error) {
	lost, err := etcdLeader(ctx)
	if err != nil {
		return nil, err
	}
	servers, config := strings.Fields(os.Getenv("E2E_SERVERS")), user("admin")
	config.Host, config.Timeout = servers[(lost+1)%len(servers)], kubeletTimeout
	number := fmt.Sprint(lost + 1)
	c := &cluster{t: t, number: number, node: "node-" + number, space: namespace(t), client: clientset(config),
		ready: map[string]corev1.ConditionStatus{}}
	for server := range servers {
		c.nodes = append(c.nodes, fmt.Sprintf("node-%d", server+1))
	}
	if err := c.allReady(ctx, worksWithin); err != nil {
		return nil, err
	}
	t.Logf("%s is the disturbed node", c.node)
	ctx, c.stop = context.WithCancel(ctx)
	c.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
			if nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
				c.look(nodes.Items)
			}
		}
	})
	return c, nil
}

func (c *cluster) end() {
	c.stop()
	c.running.Wait()
}

// look records the nodes whose condition Ready has stopped being True.
func (c *cluster) look(nodes []corev1.Node) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, node := range nodes {
		now := readiness(&node)
		if before := c.ready[node.Name]; before == corev1.ConditionTrue && now != before {
			c.t.Logf("%s: Ready of %s is %s", time.Now().Format(time.TimeOnly), node.Name, now)
			c.left = append(c.left, departure{node.Name, time.Now()})
		}
		c.ready[node.Name] = now
	}
}

// readiness returns the status of a node's condition Ready.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// leftSince returns the nodes whose condition Ready has stopped being True since `then`.
func (c *cluster) leftSince(then time.Time) (nodes []string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, left := range c.left {
		if left.at.After(then) {
			nodes = append(nodes, left.node)
		}
	}
	return nodes
}

func since(then time.Time) time.Duration { return time.Since(then).Round(100 * time.Millisecond) }

// allReady waits until all nodes are Ready and each has a Ready replica.
func (c *cluster) allReady(ctx context.Context, limit time.Duration) error {
	return eventually(ctx, limit, func(ctx context.Context) error {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if status := readiness(&node); status != corev1.ConditionTrue {
				return fmt.Errorf("Ready of %s is %s", node.Name, status)
			}
		}
		replicas, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: replicaLabel})
		if err != nil {
			return err
		}
		count := 0
		for _, pod := range replicas.Items {
			if isReady(&pod) {
				count++
			}
		}
		if count != len(c.nodes) || len(nodes.Items) != len(c.nodes) {
			return fmt.Errorf("%d of %d replicas are ready", count, len(c.nodes))
		}
		return nil
	})
}

// deploy creates a Deployment, whose Pods have a network of their own.
func (c *cluster) deploy(ctx context.Context) error {
	labels := map[string]string{"app": "worker"}
	object := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](workers),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "worker", Image: os.Getenv("E2E_IMAGE")}},
			Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		}},
	}}
	if _, err := c.client.AppsV1().Deployments(c.space).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	return eventually(ctx, worksWithin, func(ctx context.Context) error { return c.working(ctx, "") })
}

// working returns an error unless all Pods of the Deployment run, in their own network, on nodes other than `except`.
func (c *cluster) working(ctx context.Context, except string) error {
	pods, err := c.client.CoreV1().Pods(c.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := 0
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && isReady(&pod) && pod.Spec.NodeName != except && pod.Status.PodIP != pod.Status.HostIP {
			running++
		}
	}
	if running != workers {
		return fmt.Errorf("%d of %d Pods run", running, workers)
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// takeOver takes the cluster over. Afterwards every replica must have recent renewals of all kubelets, and the leaders
// must have kept their locks.
func (c *cluster) takeOver(ctx context.Context) error {
	if err := c.stay(ctx, os.Getenv("E2E_TAKEOVER")); err != nil {
		return err
	}
	for _, url := range strings.Fields(os.Getenv("E2E_REPLICAS")) {
		leases, err := clientset(at(load("admin.direct.kubeconfig"), url)).CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(leases.Items) < len(c.nodes) {
			return fmt.Errorf("%s has the Leases of %d kubelets instead of %d", url, len(leases.Items), len(c.nodes))
		}
		for _, held := range leases.Items {
			if age := time.Since(held.Spec.RenewTime.Time); age > kubeletInterval+renewalLateMax {
				return fmt.Errorf("%s at %s was renewed %s ago", held.Name, url, age)
			}
		}
	}
	return c.restartControllers(ctx)
}

// peers checks that every kube-apiserver forwards requests for an API that only the kube-apiserver of node 1 serves.
// The others find this kube-apiserver by its identity Lease.
func (c *cluster) peers(ctx context.Context) error {
	for _, url := range strings.Fields(os.Getenv("E2E_SERVERS")) {
		get := clientset(at(user("admin"), url)).CoreV1().RESTClient().Get().AbsPath("/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies")
		if err := eventually(ctx, worksWithin, func(ctx context.Context) error { return get.Do(ctx).Error() }); err != nil {
			return fmt.Errorf("through %s: %w", url, err)
		}
	}
	return nil
}

func (c *cluster) rollBack(ctx context.Context) error {
	if err := c.stay(ctx, os.Getenv("E2E_ROLLBACK")); err != nil {
		return err
	}
	return c.restartControllers(ctx)
}

// verify runs the commands in the section Verify of docs/deploy.md, and checks their output.
func (c *cluster) verify(ctx context.Context) error {
	printed, err := outputOf(ctx, os.Getenv("E2E_NODES")+" page verify")
	if err != nil {
		return err
	}
	printed = strings.Join(strings.Fields(printed), " ")
	wanted := []string{"v1.coordination.k8s.io kube-system/coordination-apiserver True", "coordination-apiserver/step: serving"}
	for _, node := range c.nodes {
		wanted = append(wanted, node+" Ready")
	}
	for _, some := range wanted {
		if !strings.Contains(printed, some) {
			return fmt.Errorf("%q is not in the output: %s", some, printed)
		}
	}
	if strings.Contains(printed, "automanaged") {
		return fmt.Errorf("the APIService has the label automanaged: %s", printed)
	}
	return nil
}

func at(config *rest.Config, url string) *rest.Config {
	config.Host = url
	return config
}

// stay runs the command of a takeover or a rollback. For some time afterwards, renewals of nodes must not be late. The
// leaders must keep their locks. TestKubelets checks the condition Ready of the nodes.
func (c *cluster) stay(ctx context.Context, change string) error {
	leaders := []string{controllerManager, "kube-scheduler"}
	var before []string
	for _, leader := range leaders {
		holder, err := liveHolder(ctx, leader)
		if err != nil {
			return err
		}
		before = append(before, holder)
	}
	seen, stop := followRenewals(ctx, c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease))
	defer stop()
	time.Sleep(kubeletInterval)
	began := time.Now()
	if err := command(ctx, change); err != nil {
		return err
	}
	took, calm := since(began), time.Duration(number("E2E_CALM_SECONDS", 120))*time.Second
	time.Sleep(calm)
	for rank, leader := range leaders {
		holder, err := holderOf(ctx, leader)
		if err != nil {
			return err
		}
		if holder != before[rank] {
			return fmt.Errorf("%s holds the lock %s instead of %s", holder, leader, before[rank])
		}
	}
	if nodes := seen.countAfter("node-", time.Time{}); nodes != len(c.nodes) {
		return fmt.Errorf("renewals of %d kubelets instead of %d were seen", nodes, len(c.nodes))
	}
	longest, name, count := seen.longest(time.Now())
	c.t.Logf("the switch took %s; %d renewals of kubelets in %s, at most %s late; %s have kept their locks",
		took, count, calm, (longest - kubeletInterval).Round(time.Millisecond), strings.Join(before, ", "))
	if longest > kubeletInterval+renewalLateMax {
		return fmt.Errorf("%s renewed after %s", name, longest)
	}
	return nil
}

// liveHolder waits until the holder of a lock renews it, and returns this holder. After a restart, the lock may still
// have the name of a dead process.
func liveHolder(ctx context.Context, lock string) (holder string, err error) {
	began := time.Now()
	err = eventually(ctx, worksWithin, func(ctx context.Context) error {
		held, err := theLease(ctx, lock)
		if err != nil {
			return err
		}
		if holder = *held.Spec.HolderIdentity; !held.Spec.RenewTime.After(began) {
			return fmt.Errorf("%s does not renew %s", holder, lock)
		}
		return nil
	})
	return holder, err
}

// restartControllers restarts the kube-controller-managers, as docs/deploy.md asks.
func (c *cluster) restartControllers(ctx context.Context) error {
	nodes := os.Getenv("E2E_NODES")
	for number := range strings.Fields(os.Getenv("E2E_SERVERS")) {
		name := fmt.Sprintf("%s-%d", controllerManager, number+1)
		if err := command(ctx, nodes+" restart "+name); err != nil {
			return err
		}
	}
	return nil
}

// update replaces the Pods of all replicas, one after the other. It does nothing for static Pods, which have no rolling
// update.
func (c *cluster) update(ctx context.Context) error {
	if _, err := c.client.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(ctx, "coordination-apiserver", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	return c.kubectl().steps(ctx,
		step{arguments: "rollout restart daemonset/coordination-apiserver", output: "restarted"},
		step{arguments: "rollout status daemonset/coordination-apiserver --timeout 180s", output: "successfully rolled out"})
}

func (c *cluster) kubectl() kubectl { return kubectl{namespace: metav1.NamespaceSystem} }

// replica returns the Pod of the replica on the disturbed node.
func (c *cluster) replica(ctx context.Context) (*corev1.Pod, error) {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		LabelSelector: replicaLabel, FieldSelector: "spec.nodeName=" + c.node})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("%d replicas are on %s, instead of one with a container", len(pods.Items), c.node)
	}
	return &pods.Items[0], nil
}

// startsAgain waits until kubelet has started the container of the replica again.
func (c *cluster) startsAgain(ctx context.Context, before *corev1.Pod, began time.Time) error {
	if err := eventually(ctx, worksWithin, func(ctx context.Context) error {
		now, err := c.replica(ctx)
		if err != nil {
			return err
		}
		if now.UID != before.UID {
			return fmt.Errorf("%s replaced %s", now.Name, before.Name)
		}
		restarts := now.Status.ContainerStatuses[0].RestartCount
		if restarts == before.Status.ContainerStatuses[0].RestartCount || !isReady(now) {
			return fmt.Errorf("%s has %d restarts, and its status is %v", now.Name, restarts, now.Status.Conditions)
		}
		return nil
	}); err != nil {
		return err
	}
	c.t.Logf("the replica was Ready again after %s", since(began))
	return nil
}

// signalReplica returns a step that sends a signal to the replica on the disturbed node. kubelet must start the replica
// again. If the replica hangs, kubelet notices that by its liveness probe.
func (c *cluster) signalReplica(signal string) func(context.Context) error {
	return func(ctx context.Context) error {
		before, err := c.replica(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := command(ctx, os.Getenv("E2E_NODES")+" signal replica-"+c.number+" "+signal); err != nil {
			return err
		}
		return c.startsAgain(ctx, before, began)
	}
}

// cut discards all packets of the disturbed node until kube-controller-manager has marked it as not ready, and 10 s
// longer.
func (c *cluster) cut(ctx context.Context) error {
	nodes := os.Getenv("E2E_NODES")
	began := time.Now()
	if err := command(ctx, nodes+" cut "+c.number); err != nil {
		return err
	}
	if err := eventually(ctx, markedWithin, ready(c.client.CoreV1().Nodes().Get, c.node, corev1.ConditionUnknown)); err != nil {
		return err
	}
	c.t.Logf("%s was marked as not ready after %s", c.node, since(began))
	time.Sleep(10 * time.Second)
	began = time.Now()
	if err := command(ctx, nodes+" mend "+c.number); err != nil {
		return err
	}
	if err := eventually(ctx, worksWithin, ready(c.client.CoreV1().Nodes().Get, c.node, corev1.ConditionTrue)); err != nil {
		return err
	}
	c.t.Logf("%s was Ready %s after its return", c.node, since(began))
	if err := c.allReady(ctx, worksWithin); err != nil {
		return err
	}
	c.t.Logf("its replica was Ready %s after its return", since(began))
	return nil
}

func (c *cluster) restartNode(ctx context.Context) error { return c.restart(ctx, c.number) }

// restartAll restarts all nodes at once, so that no replica serves Leases for some time.
func (c *cluster) restartAll(ctx context.Context) error { return c.restart(ctx, "1 2 3") }

// restartWithout restarts all nodes while the APIService is unavailable, after the death of all replicas. A
// kube-apiserver that starts then is neither live nor ready until a replica serves. The reason is its check
// autoregister-completion.
func (c *cluster) restartWithout(ctx context.Context) error {
	if err := c.available(ctx, "True"); err != nil {
		return err
	}
	line := os.Getenv("E2E_NODES") + " signal"
	for _, node := range c.nodes {
		number := strings.TrimPrefix(node, "node-")
		line += " kubelet-" + number + " STOP replica-" + number + " KILL"
	}
	if err := command(ctx, line); err != nil {
		return err
	}
	if err := c.available(ctx, "False"); err != nil {
		return err
	}
	return c.restartAll(ctx)
}

// available waits until the condition Available of the APIService has kept a status for 5 s.
func (c *cluster) available(ctx context.Context, want string) error {
	return eventually(ctx, worksWithin, func(ctx context.Context) error {
		// Each kube-apiserver writes the result of its own probes, so the status may still change.
		for range 10 {
			status, err := c.kubectl().run(ctx, "", "get", "apiservice", apiServiceName,
				"--output", `jsonpath={.status.conditions[?(@.type=="Available")].status}`)
			if err != nil {
				return err
			}
			if status != want {
				return fmt.Errorf("Available of the APIService is %s", status)
			}
			time.Sleep(500 * time.Millisecond)
		}
		return nil
	})
}

// restart kills all processes and containers of nodes, and starts the nodes again.
func (c *cluster) restart(ctx context.Context, numbers string) error {
	nodes := os.Getenv("E2E_NODES")
	before, err := c.replica(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, line := range []string{nodes + " kill " + numbers, nodes + " start " + numbers} {
		if err := command(ctx, line); err != nil {
			return err
		}
	}
	c.t.Logf("all processes had started %s after the kill", since(began))
	if err := c.startsAgain(ctx, before, began); err != nil {
		return err
	}
	if err := c.allReady(ctx, worksWithin); err != nil {
		return err
	}
	c.t.Logf("all replicas and nodes were Ready %s after the kill", since(began))
	if err := eventually(ctx, worksWithin, func(ctx context.Context) error { return c.working(ctx, "") }); err != nil {
		return err
	}
	c.t.Logf("the Pods of the Deployment ran %s after the kill", since(began))
	return nil
}

// drain drains the disturbed node. The Pods of the Deployment must move to other nodes, and the replica must stay.
func (c *cluster) drain(ctx context.Context) error {
	before, err := c.replica(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.kubectl().steps(ctx, step{arguments: "drain " + c.node + " --ignore-daemonsets --delete-emptydir-data --timeout 120s", output: "drained"}); err != nil {
		return err
	}
	c.t.Logf("the drain took %s", since(began))
	if err := eventually(ctx, worksWithin, func(ctx context.Context) error { return c.working(ctx, c.node) }); err != nil {
		return err
	}
	c.t.Logf("the Pods ran on other nodes after %s", since(began))
	if now, err := c.replica(ctx); err != nil || now.UID != before.UID || !isReady(now) {
		return fmt.Errorf("the replica did not stay: %v, %v", now, err)
	}
	return c.kubectl().steps(ctx, step{arguments: "uncordon " + c.node, output: "uncordoned"})
}
