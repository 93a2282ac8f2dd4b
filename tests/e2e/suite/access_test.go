package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// bearing returns the configuration of a client that connects directly to the server of the Leases. The client has a
// certificate of pki/, or none if `certificate` is empty.
func bearing(certificate string, http2 bool) *rest.Config {
	config := rest.AnonymousClientConfig(direct("admin"))
	if certificate != "" {
		config.CertFile = filepath.Join(os.Getenv("E2E_STATE"), "pki", certificate+".crt")
		config.KeyFile = filepath.Join(os.Getenv("E2E_STATE"), "pki", certificate+".key")
	}
	config.NextProtos = []string{"http/1.1"}
	if http2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return config
}

// ask sends a GET with headers, and returns the status and the body.
func ask(ctx context.Context, config *rest.Config, path string, headers map[string]string) (int, string, error) {
	return askBy(ctx, http.MethodGet, config, path, headers)
}

func askBy(ctx context.Context, method string, config *rest.Config, path string, headers map[string]string) (int, string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	client.Timeout = 5 * time.Second
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if http2 := slices.Contains(config.NextProtos, "h2"); http2 != (response.ProtoMajor == 2) {
		return 0, "", fmt.Errorf("the client offered %v, but the response is %s", config.NextProtos, response.Proto)
	}
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// TestForgery checks that headers such as X-Remote-User count only if the client has the front proxy's certificate. A
// client certificate counts only if a CA of the cluster has signed it. A refusal is 401, 403 or a TLS alert.
func TestForgery(t *testing.T) {
	t.Parallel()
	master := map[string]string{"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
	for _, test := range []struct {
		name, certificate string
		headers           map[string]string
		refused           bool
	}{
		{"front-proxy", "front-proxy-client", master, false},
		{"admin", "admin", nil, false},
		{"nothing", "", nil, true},
		{"headers-alone", "", master, true},
		{"user", "nobody", nil, true},
		{"user-with-headers", "nobody", master, true},
		{"node-with-headers", "node-a", master, true},
		{"front-proxy-of-other-name", "front-proxy-other", master, true},
		{"front-proxy-of-foreign-ca", "foreign-front-proxy", master, true},
		{"admin-of-foreign-ca", "foreign-admin", nil, true},
		{"admin-of-foreign-ca-with-headers", "foreign-admin", master, true},
	} {
		for _, protocol := range []string{"http1", "http2"} {
			t.Run(test.name+"/"+protocol, func(t *testing.T) {
				check(t, 15*time.Second, func(ctx context.Context) error {
					status, body, err := ask(ctx, bearing(test.certificate, protocol == "http2"), leasesPath, test.headers)
					// Go returns only this error if a TLS alert ends the connection before the request. So the test
					// repeats the request until Go returns the alert.
					for n := 0; n < 20 && err != nil && strings.Contains(err.Error(), "client conn could not be established"); n++ {
						status, body, err = ask(ctx, bearing(test.certificate, protocol == "http2"), leasesPath, test.headers)
					}
					refused := status == http.StatusUnauthorized || status == http.StatusForbidden ||
						err != nil && strings.Contains(err.Error(), "tls: ")
					if refused != test.refused || !refused && (status != http.StatusOK || !strings.Contains(body, "LeaseList")) {
						return fmt.Errorf("status %d, error %v: %s", status, err, body)
					}
					return nil
				})
			})
		}
	}
}

// TestForwardedInputIsAnswered checks that unusual input, which kube-apiserver forwards unchecked, gets a response. If
// our server reset the stream, kube-apiserver would retry each time on a new connection.
func TestForwardedInputIsAnswered(t *testing.T) {
	t.Parallel()
	config := rest.CopyConfig(user("admin"))
	config.NextProtos = []string{"h2"}
	for _, test := range []struct {
		name, method, query string
		status              int
	}{
		{"blanks", http.MethodGet, "", http.StatusOK},
		{"method", "A_B!", "", http.StatusMethodNotAllowed},
		{"space", http.MethodGet, "?a=b c", http.StatusOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			check(t, 10*time.Second, func(ctx context.Context) error {
				status, body, err := askBy(ctx, test.method, config, leasesPath+test.query, map[string]string{"X-A": " b "})
				if err != nil || status != test.status {
					return fmt.Errorf("status %d, error %v: %s", status, err, body)
				}
				return nil
			})
		})
	}
}

// TestHealth checks that health endpoints need no client certificate, since probes have none.
func TestHealth(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		t.Run(path[1:], func(t *testing.T) {
			check(t, 10*time.Second, func(ctx context.Context) error {
				if status, body, err := ask(ctx, bearing("", true), path, nil); err != nil || status != http.StatusOK {
					return fmt.Errorf("status %d, error %v: %s", status, err, body)
				}
				return nil
			})
		})
	}
}

// TestClusterHeard checks our server's metric of the time at which kube-apiserver last answered. The server asks at
// least once a minute.
func TestClusterHeard(t *testing.T) {
	if builtin() {
		t.Skip("kube-apiserver has no such metrics")
	}
	check(t, 10*time.Second, func(ctx context.Context) error {
		metrics, err := clientset(direct("admin")).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for _, what := range []string{"namespaces", "extension-apiserver-authentication"} {
			var heard int64
			_, after, _ := strings.Cut(string(metrics), fmt.Sprintf("\ncoordination_cluster_heard_timestamp_seconds{what=%q} ", what))
			if _, err := fmt.Sscan(after, &heard); err != nil {
				return fmt.Errorf("%s: %w in %s", what, err, metrics)
			}
			if age := time.Since(time.Unix(heard, 0)); age > 75*time.Second {
				return fmt.Errorf("%s: kube-apiserver last answered %s ago", what, age)
			}
		}
		return nil
	})
}

// TestNodeRestriction checks that a node can use only the Lease of its own name, through kube-apiserver and with direct
// access.
func TestNodeRestriction(t *testing.T) {
	for name, config := range map[string]*rest.Config{"aggregated": user("node-a"), "direct": direct("node-a")} {
		t.Run(name, func(t *testing.T) {
			check(t, 20*time.Second, func(ctx context.Context) error {
				return nodeRestriction(ctx, clientset(speaking(config, runtime.ContentTypeJSON)))
			})
		})
	}
}

func nodeRestriction(ctx context.Context, node kubernetes.Interface) error {
	all, own := admin().CoordinationV1().Leases(corev1.NamespaceNodeLease), node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for _, name := range []string{"node-a", "node-b"} {
		_ = all.Delete(ctx, name, metav1.DeleteOptions{})
	}
	other, err := all.Create(ctx, lease("node-b", "node-b"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = all.Delete(context.WithoutCancel(ctx), "node-b", metav1.DeleteOptions{}) }()
	elsewhere, patch := node.CoordinationV1().Leases("kube-system"), []byte(`{"spec":{"holderIdentity":"node-a"}}`)
	for name, attempt := range map[string]func() error{
		"get":    func() error { _, err := own.Get(ctx, "node-b", metav1.GetOptions{}); return err },
		"update": func() error { _, err := own.Update(ctx, other, metav1.UpdateOptions{}); return err },
		"patch": func() error {
			_, err := own.Patch(ctx, "node-b", types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		"delete": func() error { return own.Delete(ctx, "node-b", metav1.DeleteOptions{}) },
		"create": func() error { _, err := own.Create(ctx, lease("node-c", "node-a"), metav1.CreateOptions{}); return err },
		"list":   func() error { _, err := own.List(ctx, metav1.ListOptions{}); return err },
		"elsewhere": func() error {
			_, err := elsewhere.Create(ctx, lease("node-a", "node-a"), metav1.CreateOptions{})
			return err
		},
		"delete-all": func() error {
			return own.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		if err := attempt(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("%s: want 403, got %v", name, err)
		}
	}
	mine, err := own.Create(ctx, lease("node-a", "node-a"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if mine, err = own.Update(ctx, mine, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err = own.Patch(ctx, "node-a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err = own.Get(ctx, "node-a", metav1.GetOptions{}); err != nil {
		return err
	}
	return own.Delete(ctx, "node-a", metav1.DeleteOptions{})
}
