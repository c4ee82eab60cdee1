#include "machine.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sluice.h"

/* The text after "name :" in a line of /proc/cpuinfo, or NULL. */
static char *value_of(char *line, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || (line[n] != '\t' && line[n] != ' ')) return NULL;
    char *text = strchr(line, ':');
    if (text == NULL) return NULL;
    text += strspn(text, ": \t");
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static void look_at_cpu(struct machine *m)
{
    char line[8192];
    char implementer[32] = "", part[32] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *text;
        if (m->cpu[0] == '\0' && (text = value_of(line, "model name")) != NULL)
            snprintf(m->cpu, sizeof m->cpu, "%.100s", text);
        else if ((text = value_of(line, "CPU implementer")) != NULL)
            snprintf(implementer, sizeof implementer, "%.20s", text);
        else if ((text = value_of(line, "CPU part")) != NULL)
            snprintf(part, sizeof part, "%.20s", text);
        else if ((text = value_of(line, "flags")) != NULL)
            m->virtual = strstr(text, " hypervisor") != NULL;
    }
    if (f != NULL) fclose(f);
    if (m->cpu[0] == '\0' && part[0] != '\0')
        snprintf(m->cpu, sizeof m->cpu, "implementer %s, part %s", implementer, part);
    if (m->cpu[0] == '\0') snprintf(m->cpu, sizeof m->cpu, "unknown");
}

/* A number from /sys/devices/system/cpu/cpuN/topology, or -1. */
static int topology(int cpu, const char *what)
{
    char path[128];
    int number = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *f = fopen(path, "r");
    if (f == NULL) return -1;
    if (fscanf(f, "%d", &number) != 1) number = -1;
    fclose(f);
    return number;
}

/* Choose two CPUs for two processes: different cores of one socket if possible,
 * otherwise any. Start with the highest number, since many machines handle device
 * interrupts on the first CPUs. */
static void choose_pair(struct machine *m)
{
    cpu_set_t set;
    int best = -1;
    m->pair[0] = m->pair[1] = -1;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    m->allowed = CPU_COUNT(&set);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
        if (!CPU_ISSET((size_t)cpu, &set)) continue;
        if (m->pair[0] < 0) {
            m->pair[0] = cpu;
            continue;
        }
        int a = m->pair[0];
        bool near = topology(cpu, "physical_package_id") ==
                    topology(a, "physical_package_id");
        bool core = topology(cpu, "core_id") == topology(a, "core_id") && near &&
                    topology(a, "core_id") >= 0;
        int worth = core ? 0 : near ? 2 : 1;
        if (worth <= best) continue;
        best = worth;
        m->pair[1] = cpu;
        m->same_core = core;
    }
}

static void look_at_programs(struct machine *m)
{
    struct utsname u;
    Dl_info where;
    if (uname(&u) == 0)
        snprintf(m->kernel, sizeof m->kernel, "%.20s %.80s, %.40s", u.sysname,
                 u.release, u.machine);
#ifdef __clang__
    snprintf(m->compiler, sizeof m->compiler, "clang %s, " BENCH_FLAGS,
             __clang_version__);
#else
    snprintf(m->compiler, sizeof m->compiler, "gcc %s, " BENCH_FLAGS, __VERSION__);
#endif
    snprintf(m->libc, sizeof m->libc, "glibc %s", gnu_get_libc_version());
    /* Convert the address of a function to a data pointer, which POSIX allows. */
    int (*function)(struct sluice_canal *, const char *,
                    struct sluice_key **) = sluice_key_resolve;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (dladdr(address, &where) != 0 && where.dli_fname != NULL) {
        const char *slash = strrchr(where.dli_fname, '/');
        snprintf(m->library, sizeof m->library, "%.60s",
                 slash != NULL ? slash + 1 : where.dli_fname);
    }
}

void machine_look(struct machine *m)
{
    *m = (struct machine){.allowed = 1};
    look_at_cpu(m);
    look_at_programs(m);
    choose_pair(m);
    m->online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&m->load, 1) != 1) m->load = -1;
}
