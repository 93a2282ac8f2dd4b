package suite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

// informersOf has the informers that were started at one time.
type informersOf struct {
	own cache.SharedIndexInformer
	// Informers in other processes, with several versions of client-go.
	foreign []*foreignInformers
}

// foreignInformers has the informers of one process of ../informers, which has one version of client-go.
type foreignInformers struct {
	name  string
	mutex sync.Mutex
	// Holder and renewTime of each Lease, by informer and by name. They are from the last line that the process wrote.
	contents map[string]map[string]string
}

// beginForeignInformers starts each program of E2E_INFORMERS (../informers with one version of client-go), with and
// without WatchList.
//
//	E2E_INFORMERS   the programs, separated by spaces
func (s *scene) beginForeignInformers() (all []*foreignInformers, err error) {
	for _, program := range strings.Fields(os.Getenv("E2E_INFORMERS")) {
		for _, watchList := range []string{"true", "false"} {
			run := exec.CommandContext(s.alive, program, "--kubeconfig", filepath.Join(os.Getenv("E2E_STATE"), "admin.kubeconfig"),
				"--servers", s.configs[0].Host+","+s.configs[1].Host, "--namespace", s.space, "--selector", "fixed")
			run.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient="+watchList)
			if watchList == "true" {
				run.Env = append(run.Env, "ENABLE_CLIENT_GO_WATCH_LIST_ALPHA=true")
			}
			output, err := run.StdoutPipe()
			if err != nil {
				return nil, err
			}
			// The program ends when its standard input is closed. So it also ends when the test is killed.
			if _, err := run.StdinPipe(); err != nil {
				return nil, err
			}
			var errors bytes.Buffer
			run.Stderr = &errors
			if err := run.Start(); err != nil {
				return nil, err
			}
			started := &foreignInformers{name: fmt.Sprintf("%s, WatchList %s", filepath.Base(program), watchList)}
			all = append(all, started)
			s.running.Go(func() {
				started.read(bufio.NewScanner(output))
				if err := run.Wait(); s.alive.Err() == nil {
					s.fail(fmt.Errorf("%s has ended: %v: %s", started.name, err, errors.String()))
				}
			})
		}
	}
	return all, nil
}

func (f *foreignInformers) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var contents map[string]map[string]string
		if json.Unmarshal(lines.Bytes(), &contents) == nil {
			f.mutex.Lock()
			f.contents = contents
			f.mutex.Unlock()
		}
	}
}

// each returns comparison functions by name: one for this process's informer, and one for each foreign process. A
// function compares the Leases in the informers with the wanted ones.
func (i informersOf) each() map[string]func(wanted map[string]string) error {
	all := map[string]func(map[string]string) error{"own": i.ownAgrees}
	for _, foreign := range i.foreign {
		all[foreign.name] = foreign.agree
	}
	return all
}

// ownAgrees compares the wanted Leases with those in the informer of this process. The informer has other Leases too.
func (i informersOf) ownAgrees(wanted map[string]string) error {
	stored := map[string]string{}
	for _, object := range i.own.GetStore().List() {
		if held := object.(*coordinationv1.Lease); wanted[held.Name] != "" {
			stored[held.Name] = shown(held)
		}
	}
	if !maps.Equal(stored, wanted) {
		return fmt.Errorf("the list has %v, the informer's store has %v", wanted, stored)
	}
	return nil
}

// shownOf returns the compared fields of Leases, by name.
func shownOf(leases map[string]coordinationv1.Lease) map[string]string {
	all := map[string]string{}
	for name, held := range leases {
		all[name] = shown(&held)
	}
	return all
}

// shown returns the compared fields of a Lease, as ../informers writes them.
func shown(held *coordinationv1.Lease) string {
	return fmt.Sprint(*held.Spec.HolderIdentity, " ", held.Spec.RenewTime.UTC())
}

// agree compares the Leases in each informer of the process with the wanted ones.
func (f *foreignInformers) agree(wanted map[string]string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.contents) == 0 {
		return fmt.Errorf("the process has written no Leases yet")
	}
	for informer, stored := range f.contents {
		if !maps.Equal(stored, wanted) {
			return fmt.Errorf("%s: the list has %v, the informer's store has %v", informer, wanted, stored)
		}
	}
	return nil
}
