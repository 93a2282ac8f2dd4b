package suite

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestSwitch switches from built-in Leases to our server, back, and again to our server, without a copy of Leases.
//
//	E2E_REGISTER, E2E_UNREGISTER   commands that switch to our server and back
//	E2E_RESTART_APISERVER          command that restarts kube-apiserver
//	E2E_STOP, E2E_START            commands that stop and start our server
//	E2E_STOP_APISERVER, E2E_START_APISERVER   commands that stop and start kube-apiserver
//	E2E_SINCE_1_37                 set for kube-apiserver 1.37 and newer. Such a kube-apiserver deletes its identity
//	                               Lease when it stops, and its probe verifies certificates
func TestSwitch(t *testing.T) {
	if os.Getenv("E2E_REGISTER") == "" {
		t.Skip("tests/e2e/run runs this test between the two rounds of the suite")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client, space := admin(), namespace(t)
	leases := client.CoordinationV1().Leases(space)
	old, err := leases.Create(ctx, lease("old", "one"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer before.Stop()
	do := func(variable string) {
		t.Helper()
		if err := command(ctx, os.Getenv(variable)); err != nil {
			t.Fatal(err)
		}
	}

	do("E2E_REGISTER")
	if _, err := leases.Get(ctx, "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("want 404 for a Lease that was not copied, got %v", err)
	}
	if err := eventually(ctx, 10*time.Second, func(ctx context.Context) error {
		_, err := leases.Create(ctx, lease("new", "one"), metav1.CreateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// A watch from before the switch still watches built-in storage, which gets no more writes.
	select {
	case event, more := <-before.ResultChan():
		t.Fatalf("the watch from before the switch must stay silent, got event %v, more: %v", event, more)
	case <-time.After(3 * time.Second):
	}
	// A new watch from the same resourceVersion gets 410, so its client must list again.
	if err := expired(leases.Watch(ctx, metav1.ListOptions{ResourceVersion: old.ResourceVersion})); err != nil {
		t.Fatal(err)
	}

	do("E2E_RESTART_APISERVER")
	if err := eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		_, err := leases.Get(ctx, "new", metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatalf("after a restart of kube-apiserver: %v", err)
	}
	own, err := (kubectl{space}).run(ctx, "", "get", "apiservice", apiServiceName, "-o",
		`jsonpath={.spec.service.name} {.metadata.labels.kube-aggregator\.kubernetes\.io/automanaged}`)
	if err != nil || own != "coordination-apiserver " {
		t.Fatalf("the APIService after a restart of kube-apiserver: %q %v", own, err)
	}

	informer := leaseInformer(client, space)
	told, err := start(ctx, informer)
	if err != nil {
		t.Fatal(err)
	}
	if err := eventually(ctx, 10*time.Second, told.agrees(client, space, informer, "new")); err != nil {
		t.Fatal(err)
	}
	last, err := leases.Get(ctx, "new", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	do("E2E_UNREGISTER")
	if back, err := leases.Get(ctx, "old", metav1.GetOptions{}); err != nil || back.ResourceVersion != old.ResourceVersion {
		t.Fatalf("the built-in Lease has changed: %v %v", back, err)
	}
	// Our resourceVersions are far above those of built-in storage. So for a watch from one of ours, kube-apiserver
	// waits until built-in storage reaches it, and sends no event.
	silent, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: last.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Stop()
	if _, err := leases.Create(ctx, lease("newer", "one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case event, more := <-silent.ResultChan():
		t.Fatalf("a watch from a future resourceVersion must stay silent, got event %v, more: %v", event, more)
	case <-time.After(3 * time.Second):
	}
	do("E2E_STOP")
	// The informer's watch has ended with 410. The informer first lists at a resourceVersion of our server, which
	// kube-apiserver refuses ten times as too large. Then it lists without a resourceVersion.
	if err := eventually(ctx, 80*time.Second, told.agrees(client, space, informer, "newer")); err != nil {
		t.Fatal(err)
	}
	do("E2E_START")
	do("E2E_REGISTER")
	if os.Getenv("E2E_SINCE_1_37") == "" {
		return
	}
	for _, checked := range []func(context.Context) error{deletesIdentity, refusesBundle} {
		if err := checked(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// deletesIdentity checks that kube-apiserver deletes its identity Lease at our server when it stops, and creates the
// Lease again when it starts.
func deletesIdentity(ctx context.Context) error {
	exists := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			list, err := clientset(direct("admin")).CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
				metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
			if err == nil && (len(list.Items) > 0) != want {
				err = fmt.Errorf("identity Leases of kube-apiserver: %d", len(list.Items))
			}
			return err
		}
	}
	if err := eventually(ctx, 20*time.Second, exists(true)); err != nil {
		return fmt.Errorf("before the stop: %w", err)
	}
	if err := command(ctx, os.Getenv("E2E_STOP_APISERVER")); err != nil {
		return err
	}
	stopped := exists(false)(ctx)
	if err := errors.Join(stopped, command(ctx, os.Getenv("E2E_START_APISERVER"))); err != nil {
		return fmt.Errorf("after the stop: %w", err)
	}
	return eventually(ctx, 20*time.Second, exists(true))
}

// refusesBundle checks that kube-apiserver's probe verifies our server's certificate. If the caBundle of the APIService
// has another CA, kube-apiserver marks the APIService as unavailable.
func refusesBundle(ctx context.Context) error {
	foreign, err := os.ReadFile(filepath.Join(os.Getenv("E2E_STATE"), "pki", "front-proxy-ca.crt"))
	if err != nil {
		return err
	}
	const service = "apiservice/v1.coordination.k8s.io"
	admin := kubectl{metav1.NamespaceSystem}
	bundle, err := admin.run(ctx, "", "get", service, "-o", "jsonpath={.spec.caBundle}")
	if err != nil {
		return err
	}
	// kube-apiserver probes every 30 s, and at once after a change of the APIService.
	turn := func(bundle, reason, message string) error {
		if _, err := admin.run(ctx, "", "patch", service, "--type=merge", "-p", `{"spec":{"caBundle":"`+bundle+`"}}`); err != nil {
			return err
		}
		return eventually(ctx, 35*time.Second, func(ctx context.Context) error {
			said, err := admin.run(ctx, "", "get", service, "-o", `jsonpath={range .status.conditions[?(@.type=="Available")]}{.reason}: {.message}{end}`)
			if err == nil && !(strings.HasPrefix(said, reason+": ") && strings.Contains(said, message)) {
				err = fmt.Errorf("want reason %s with %q, got %q", reason, message, said)
			}
			return err
		})
	}
	if err := turn(base64.StdEncoding.EncodeToString(foreign), "FailedDiscoveryCheck", "x509: certificate signed by unknown authority"); err != nil {
		return errors.Join(err, turn(bundle, "Passed", ""))
	}
	return turn(bundle, "Passed", "")
}

// expired checks that a watch gets 410, as the response or as its first event.
func expired(w watch.Interface, err error) error {
	if err == nil {
		defer w.Stop()
		event := <-w.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return fmt.Errorf("want 410, got %v", err)
	}
	return nil
}
