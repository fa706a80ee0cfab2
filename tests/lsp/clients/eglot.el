;;; Opens OOMLINT_FILE, waits for a finding, fixes all, saves.  -*- lexical-binding: t -*-
;;; OOMLINT_SERVER is the server's command, words split at new lines.
(let ((default-directory "/usr/share/emacs/site-lisp/elpa/"))
  (when (file-directory-p default-directory)
    (normal-top-level-add-subdirs-to-load-path)))
(require 'eglot)
(require 'cl-lib)
(define-derived-mode oomlint-yaml-mode fundamental-mode "YAML")
(setq eglot-sync-connect t
      eglot-connect-timeout 60
      eglot-confirm-server-initiated-edits nil
      eglot-confirm-server-edits nil
      make-backup-files nil
      create-lockfiles nil)
(add-to-list 'eglot-server-programs
             `(oomlint-yaml-mode . (,@(split-string (getenv "OOMLINT_SERVER") "\n")
                                    :initializationOptions (:hardware "8xA100-80GB"))))
;; Nobody is there to say yes to an edit of a file that is not open.
(fset 'y-or-n-p (lambda (&rest _) t))
(find-file (getenv "OOMLINT_FILE"))
(oomlint-yaml-mode)
(let ((found nil))
  (cl-defmethod eglot-handle-notification :before
    (_server (_method (eql textDocument/publishDiagnostics)) &key diagnostics
             &allow-other-keys)
    (setq found (append diagnostics nil)))
  (apply #'eglot (eglot--guess-contact))
  (with-timeout (60 (error "No finding arrived"))
    (while (not found) (accept-process-output nil 0.1)))
  (princ (mapconcat (lambda (d) (plist-get d :code)) found " "))
  (let* ((answer (jsonrpc-request
                  (eglot-current-server) :textDocument/codeAction
                  (list :textDocument (eglot--TextDocumentIdentifier)
                        :range (list :start (eglot--pos-to-lsp-position (point-min))
                                     :end (eglot--pos-to-lsp-position (point-max)))
                        :context (list :diagnostics [] :only ["source.fixAll"]))))
         (action (aref answer 0)))
    ;; from Emacs 30 on it is told where an edit comes from
    (apply #'eglot--apply-workspace-edit (plist-get action :edit)
           (when (> (car (func-arity 'eglot--apply-workspace-edit)) 1) '(nil)))
    (save-some-buffers t)
    (eglot-shutdown (eglot-current-server))))
