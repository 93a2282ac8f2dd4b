package suite

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRemoval removes the server after a rollback, with the commands of docs/deploy.md. No object of the kinds below
// may be left whose name contains that of the server. The APIService for Leases must name no Service.
//
//	E2E_REMOVAL  command that removes the server
func TestRemoval(t *testing.T) {
	removal := os.Getenv("E2E_REMOVAL")
	if removal == "" {
		t.Skip("tests/e2e/nodes runs this test, unless the variant is removed in another way")
	}
	check(t, 3*time.Minute, func(ctx context.Context) error {
		if err := command(ctx, removal); err != nil {
			return err
		}
		service, err := (kubectl{metav1.NamespaceSystem}).run(ctx, "", "get", "apiservice", apiServiceName, "-o", servicePath)
		if err != nil {
			return err
		}
		if service != "" {
			return fmt.Errorf("the APIService for Leases still names the Service %s", service)
		}
		kinds := "daemonsets,deployments,pods,poddisruptionbudgets,services,serviceaccounts,endpointslices,secrets,configmaps," +
			"roles,rolebindings,clusterroles,clusterrolebindings,apiservices,mutatingadmissionpolicies," +
			"mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
		// The garbage collector deletes the Pods after the DaemonSet.
		return eventually(ctx, worksWithin, func(ctx context.Context) error {
			left, err := (kubectl{metav1.NamespaceSystem}).run(ctx, "", "get", kinds, "--output", "name")
			if err != nil {
				return err
			}
			for _, name := range strings.Fields(left) {
				if strings.Contains(name, "coordination-apiserver") {
					return fmt.Errorf("%s is left", name)
				}
			}
			return nil
		})
	})
}
