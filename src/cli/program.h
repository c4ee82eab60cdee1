/* program.h - the other programs of the package: sluice-server and sluice-offline. */
#ifndef SL_CLI_PROGRAM_H
#define SL_CLI_PROGRAM_H

/* Execute one of them with these arguments; this sets argv[0]. The search goes through the
 * directory of this program, the build tree (src/DIRECTORY), the directory of the
 * installation, and PATH. Returns only if that fails: an exit status, after a message. */
int cli_exec_program(const char *program, const char *directory, char **argv);

#endif /* SL_CLI_PROGRAM_H */
