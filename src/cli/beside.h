/* beside.h - programs beside this one. */
#ifndef SL_CLI_BESIDE_H
#define SL_CLI_BESIDE_H

/* Become a program of the package sluice-server, with these words; argv[0] is ours to set.
 * It is looked for beside this one, then where it is built (src/FOLDER), where it is
 * installed to, and in PATH. An exit status if that failed, and all has been said. */
int cli_become_program(const char *program, const char *folder, char **argv);

#endif /* SL_CLI_BESIDE_H */
